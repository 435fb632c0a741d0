"""Contents of the replies to `/agent`, in Slack's Block Kit.

See https://docs.slack.dev/reference/block-kit/blocks/section-block/ .
"""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.context.explain_context import ContextReport, FiringGauge, NextAction
from throughline.domain.message import clean_text
from throughline.slack.bolt import CommandReply

FULL, EMPTY, MARK = "█", "░", "│"
CELLS = 20
NAME_LENGTH = 40
HELP = (
    "*/agent* works on the thread here that you wrote in last, and names it.\n"
    "• `/agent context`: how full its context is, and what the next message triggers\n"
    "• `/agent summarize [focus]`: summarize all but the newest messages now\n"
    "• `/agent new`: begin a new conversation with the next message in that thread; the old one is kept\n"
    "• `/agent stop`: stop the current answer and the messages that wait after it\n"
    "• `/agent resume SESSION_ID`: in a direct conversation, continue a session that you began elsewhere\n"
    "• `/agent link CODE`: become the user for whom `throughline slack link --user NAME` made the code\n"
    "An :octagonal_sign: under a message stops its answer. A message that is still waiting can be edited or deleted."
)


@dataclass(frozen=True, slots=True)
class Gauge:
    """One bar of the context report: `used` of `limit`, which is None or 0 without a limit.

    `mark` is another value on the same scale. `is_firing`: this gauge triggers the next action.
    """

    label: str
    used: int
    limit: int | None
    mark: int | None = None
    is_firing: bool = False


def plain(text: str) -> CommandReply:
    """Return a reply that is only a text."""
    return CommandReply(text)


def named(title: str) -> str:
    """Return the beginning of a title in quotation marks, without mentions, links or formatting.

    A blank title gives the words "a conversation without a title".
    """
    words = " ".join(clean_text(title).replace("`", "'").split())
    if len(words) > NAME_LENGTH:
        words = words[: NAME_LENGTH - 1].rstrip() + "…"
    return f'"{escaped(words)}"' if words else "a conversation without a title"


def show_context(report: ContextReport, title: str) -> CommandReply:
    """Return the context report of the session with this title.

    It shows bars for messages (N), tokens (K) and the window, the next action, and the summary in use.
    """
    head = f"Context of {report.agent} on {report.model} · window {report.context_window:,} tokens"
    bars = "\n".join(draw(gauge) for gauge in _gauges(report))
    details = (
        f"system {report.system_tokens:,} · tools {report.tools_tokens:,} · summary {report.summary_tokens:,} · "
        f"messages {report.message_tokens:,} · {MARK} threshold {report.threshold_tokens:,}"
    )
    lines = (f"*{escaped(head)}*", f"```{bars}```", _next_step(report), *_summary(report))
    blocks = [*(_section(line) for line in lines), _context(details), _context(f"About {named(title)}")]
    return CommandReply(f"{escaped(head)}: {report.usage_percent:.0f} % of the window. About {named(title)}.", blocks)


def draw(gauge: Gauge) -> str:
    """Return a gauge as a bar with its numbers. All bars have the same width."""
    filled = _filled(gauge)
    cells = FULL * filled + EMPTY * (CELLS - filled)
    if gauge.mark and gauge.limit and gauge.mark < gauge.limit:
        at = min(CELLS - 1, gauge.mark * CELLS // gauge.limit)
        cells = cells[:at] + MARK + cells[at + 1 :]
    limit = f"{gauge.limit:,}" if gauge.limit else "off"
    percent = f" {gauge.used * 100 / gauge.limit:.0f}%" if gauge.limit else ""
    firing = " ⚡" if gauge.is_firing else ""
    return f"{gauge.label:<10} [{cells}] {gauge.used:,} / {limit}{percent}{firing}"


def _filled(gauge: Gauge) -> int:
    """Return the number of filled cells: at least one above 0, and all of them only from the limit on."""
    if not gauge.limit or gauge.used <= 0:
        return 0
    if gauge.used >= gauge.limit:
        return CELLS
    return min(CELLS - 1, max(1, round(gauge.used * CELLS / gauge.limit)))


def _gauges(report: ContextReport) -> Sequence[Gauge]:
    return (
        Gauge(
            "N messages",
            report.messages_since_summary,
            report.messages_threshold,
            is_firing=report.next_trigger is FiringGauge.MESSAGES,
        ),
        Gauge(
            "K tokens",
            report.tokens_since_summary,
            report.tokens_threshold,
            is_firing=report.next_trigger is FiringGauge.TOKENS,
        ),
        Gauge(
            "window",
            report.total_tokens,
            report.context_window,
            mark=report.threshold_tokens,
            is_firing=report.next_trigger is FiringGauge.WINDOW,
        ),
    )


def _next_step(report: ContextReport) -> str:
    match report.next_action:
        case NextAction.COMPACT:
            return ":zap: The next message will trigger: older messages are shortened or summarized first."
        case NextAction.PREPARE if report.prepared is None:
            return "A summary is due: it is prepared in the background, at the latest after the next message."
        case NextAction.PREPARE | NextAction.NONE:
            return "The next message triggers nothing." if report.prepared is None else "A summary is ready for use."


def _summary(report: ContextReport) -> Sequence[str]:
    if report.summary is None:
        return ()
    found = report.summary
    return (f"Summary: {found.messages_summarized:,} messages in {found.token_count:,} tokens.",)


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _context(text: str) -> dict[str, object]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def escaped(text: str) -> str:
    """Return `text` for Slack's mrkdwn, without mentions and links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
