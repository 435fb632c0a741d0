"""What the command line and Slack both tell about a context: its gauges, the next step, and the summaries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from throughline.context.explain_context import ContextReport, RestoreReport, SummaryReport
from throughline.context.policy import Adopt
from throughline.wire.context import ContextOut, RestoredOut, SummaryOut

Told: TypeAlias = ContextOut | ContextReport
ToldSummary: TypeAlias = SummaryOut | SummaryReport


@dataclass(frozen=True, slots=True)
class Gauge:
    """One bar: `used` of `limit`, which is None or 0 without a limit. `mark` is another value on the same scale.

    `is_firing`: this gauge triggers the next action.
    """

    label: str
    used: int
    limit: int | None
    mark: int | None = None
    is_firing: bool = False

    @property
    def fires_at(self) -> int:
        """Value from which the bar is red: the mark if there is one, else the limit, 0 if there is neither."""
        return self.mark or self.limit or 0

    def filled_of(self, cells: int) -> int:
        """Return how many of the cells are filled: at least one above 0, and all of them only from the limit on."""
        if not self.limit or self.used <= 0:
            return 0
        if self.used >= self.limit:
            return cells
        return min(cells - 1, max(1, round(self.used * cells / self.limit)))


def context_gauges(context: Told, labels: tuple[str, str, str]) -> tuple[Gauge, ...]:
    """Return the gauges of messages, tokens and the window, with these labels; that of tokens only if it can fire."""
    messages, tokens, window = labels
    since, firing = context.messages_since_summary, context.next_trigger
    counted = Gauge(tokens, context.tokens_since_summary, context.tokens_threshold, is_firing=firing == "tokens")
    return (
        Gauge(messages, since, context.messages_threshold, is_firing=firing == "messages"),
        *([] if _is_out_of_reach(context) else [counted]),
        Gauge(
            window,
            context.total_tokens,
            context.context_window,
            mark=context.threshold_tokens,
            is_firing=firing == "window",
        ),
    )


def percent(used: int, limit: int | None) -> str:
    """Return `used` of `limit` in percent, a dash without a limit, and `>999%` beyond that.

    As in a bar, only nothing is `0%`, and `100%` is reached only at the limit.
    """
    if not limit:
        return "–"
    share = used * 100 / limit
    if 0 < share < 1:
        return "<1%"
    if share < 100:  # noqa: PLR2004  # percent
        share = min(share, 99)
    return ">999%" if share > 999 else f"{share:.0f}%"  # noqa: PLR2004  # the column holds four characters


def is_only_fitted(context: Told) -> bool:
    """Return whether the next message only shortens messages or leaves them out.

    No summary comes of it while a restored one stays, or if the agent's summaries are not automatic.
    """
    is_window = context.next_action == "compact" and context.next_trigger == "window"
    return is_window and (context.restored is not None or context.messages_threshold is None)


def next_step(context: Told) -> str:
    """Return the sentence on what the next message triggers."""
    match context.next_action:
        case "compact" if is_only_fitted(context):
            return "⚡ With the next message, what does not fit is shortened or left out of the prompt."
        case "compact":
            return "⚡ The next message triggers a compaction: older messages are shortened or summarized first."
        case "prepare":
            which = "A" if context.prepared is None else "A further"
            return f"{which} summary is due: it is prepared in the background, at the latest after the next message."
        case "none":
            return "The next message triggers nothing."
        case other:
            return f"⚡ The next message triggers: {other[:30]}."


def about_summaries(context: Told, made: Callable[[ToldSummary], str] = lambda _: "") -> list[str]:
    """Return sentences on the summaries in use and ready, what N and K count from, and a restore that still holds.

    `made` returns words on when and how a summary was made, which follow the messages that it covers.
    """
    told = (
        _in_use(context, made),
        _ready(context, made),
        _counted_from(context),
        _out_of_reach(context),
        _what_ends_restore(context),
    )
    return [sentence for sentence in told if sentence]


def after_restore(context: Told) -> str:
    """Return the sentence on what ends the restore that was just made; '' if that is not known."""
    if context.messages_threshold is None:
        return "This stays until a summary is asked for."
    return _what_ends_restore(context)


def _in_use(context: Told, made: Callable[[ToldSummary], str]) -> str:
    if context.summary is not None:
        return f"Summary in use: {_covered(context.summary)}{made(context.summary)}."
    return "No summary is in use." if context.summary_count else "No summary is in use yet."


def _ready(context: Told, made: Callable[[ToldSummary], str]) -> str:
    if context.prepared is None:
        return ""
    return f"Summary ready: {_covered(context.prepared)}{made(context.prepared)}; {_use(context)}."


def _counted_from(context: Told) -> str:
    """Return the sentence on the position from which N and K count; '' if nothing else could be meant."""
    position, prepared, summary = context.counted_from_position, context.prepared, context.summary
    counts = "N counts" if _is_out_of_reach(context) else "N and K count"
    if context.messages_threshold is None:
        return ""
    if position == 0:
        return f"{counts} all messages, because no summary is in use." if prepared is not None else ""
    where = ""
    if context.restored is not None and position == context.restored.at_position:
        where = ", the newest one when you went back"
    elif prepared is not None and position == prepared.through_position:
        where = ", where the summary that is ready ends"
    elif summary is not None and position == summary.through_position:
        where = ", where the summary in use ends"
    return f"{counts} the messages after #{position}{where}."


def _what_ends_restore(context: Told) -> str:
    """Return the sentence on what ends a restore that still holds; '' if none does."""
    if context.restored is None:
        return ""
    counts = "N" if _is_out_of_reach(context) else "N or K"
    first = f"{counts} is reached, " if context.adopt == Adopt.IMMEDIATELY else ""
    what = "Going back to no summary holds" if context.summary is None else "The summary in use was restored and stays"
    return f"{what} until {first}{_end_of(context.restored)}."


def _out_of_reach(context: Told) -> str:
    if not _is_out_of_reach(context):
        return ""
    return f"K is off: this window never holds its {context.tokens_threshold:,} tokens."


def _is_out_of_reach(context: Told) -> bool:
    limit = context.tokens_threshold
    return not context.can_reach_tokens and limit is not None and context.tokens_since_summary < limit


def _covered(summary: ToldSummary) -> str:
    return "#1" if summary.through_position == 1 else f"#1-#{summary.through_position}"


def _use(context: Told) -> str:
    if context.messages_threshold is None:
        return "no turn uses it, because the agent's summaries are not automatic"
    share = f"{percent(context.threshold_tokens, context.context_window)} of the window"
    at = share if context.adopt == Adopt.AT_THRESHOLD else f"N, at K or at {share}"
    return f"it is used at {at}"


def _end_of(restored: RestoredOut | RestoreReport) -> str:
    needed, now = f"{restored.tokens_needed:,}", f"{restored.tokens_since:,}"
    return f"{needed} tokens are said after #{restored.at_position} (now {now}) or a summary is asked for"
