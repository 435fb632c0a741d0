"""Drawing of a context and of the plan for a model call: pure functions that return text of limited width."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.text import Text

from throughline.cli.printable import joined, moment, one_line, wrapped
from throughline.wire.context import (
    ContextOut,
    PreviewedMessage,
    PreviewOut,
    SessionContextOut,
    SummariserOut,
)
from throughline.wire.gauges import Gauge, ToldSummary, about_summaries, context_gauges, next_step, percent

FULL, EMPTY, MARK = "█", "░", "│"
SMALLEST_BAR, LARGEST_BAR = 8, 40
WIDE = 70  # columns from which on the bars have their long names
INDENT = "  "
FIRES = " ⚡"
NEARLY_FULL = 0.75  # share of `fires_at` from which on a bar is yellow
OVER_WINDOW = "over 100%: before the next message, the prompt is reduced until it fits"


def draw_context(context: SessionContextOut, *, width: int) -> Text:
    """Return the whole report: title, bars for N, K and the window, the next action, summaries and quotations."""
    window = f"window {context.context_window:,} tokens"
    head = f"Context of {one_line(context.agent, limit=64)} on {one_line(context.model, limit=100)} · {window}"
    style = "yellow" if context.next_action != "none" else ""
    below = [
        *draw_gauges(_gauges(context, is_wide=width >= WIDE), width=width),
        *_texts(_window_details(context), "dim", width=width),
        *_texts([one_line(next_step(context), limit=200)], style, width=width),
        *_texts(_summary_lines(context), "", width=width),
        *_texts(_quoted_in_last_turn(context), "", width=width),
    ]
    heads = (Text(line, style="bold") for line in wrapped(head, width=width))
    return joined([*heads, *(Text(INDENT) + line for line in below)], width=width)


def draw_gauges(gauges: Iterable[Gauge], *, width: int) -> list[Text]:
    """Return one line per gauge, their columns aligned, each at most `width` - 2 columns."""
    shown = list(gauges)
    labels = max(len(gauge.label) for gauge in shown)
    beside = width - len(INDENT) - labels - len(" [] >999% ") - cell_len(FIRES)
    numbers = [_numbers(gauge) for gauge in shown]
    if max(map(len, numbers)) > beside - SMALLEST_BAR:
        numbers = [_number(gauge.used) for gauge in shown]
    tail = max(map(len, numbers))
    inner = max(SMALLEST_BAR, min(LARGEST_BAR, beside - tail))
    return [
        _line(gauge, f"{gauge.label:<{labels}}", f"{text:>{tail}}", inner)
        for gauge, text in zip(shown, numbers, strict=True)
    ]


def draw_bar(gauge: Gauge, *, inner: int) -> Text:
    """Return the bar alone, with `inner` cells: at least one filled above 0, all filled only from the limit on."""
    filled = gauge.filled_of(inner)
    cells = Text(FULL * filled, style=_colour(gauge)) + Text(EMPTY * (inner - filled), style="dim")
    if gauge.mark and gauge.limit and gauge.mark < gauge.limit:
        at = min(inner - 1, gauge.mark * inner // gauge.limit)
        cells = cells[:at] + Text(MARK, style="bold") + cells[at + 1 :]
    return Text("[") + cells + Text("]")


def _line(gauge: Gauge, label: str, numbers: str, inner: int) -> Text:
    bar = draw_bar(gauge, inner=inner)
    firing = FIRES if gauge.is_firing else " " * cell_len(FIRES)
    return Text(f"{label} ") + bar + Text(f" {percent(gauge.used, gauge.limit):>5} {numbers}{firing}")


def _texts(lines: Iterable[str], style: str, *, width: int) -> list[Text]:
    return [Text(part, style=style) for line in lines for part in wrapped(line, width=width - len(INDENT))]


def _colour(gauge: Gauge) -> str:
    if not gauge.fires_at or gauge.used < gauge.fires_at * NEARLY_FULL:
        return "green"
    return "yellow" if gauge.used < gauge.fires_at else "red"


def _numbers(gauge: Gauge) -> str:
    return f"{_number(gauge.used)} / {_number(gauge.limit)}" if gauge.limit else f"{_number(gauge.used)} / off"


def _number(value: int) -> str:
    return f"{value:,}" if abs(value) < 10_000_000 else f"{value / 1_000_000:,.1f}M"  # noqa: PLR2004  # keeps 80 columns


def _gauges(context: ContextOut, *, is_wide: bool) -> tuple[Gauge, ...]:
    since = f" after #{context.counted_from_position}" if is_wide and context.counted_from_position else ""
    return context_gauges(context, (f"N messages{since}", f"K tokens{since}", "  window"))


def _window_details(context: ContextOut) -> list[str]:
    threshold, reserve = context.threshold_tokens, context.response_reserve
    share = percent(threshold, context.context_window)
    parts = (
        f"system {context.system_tokens:,} · tools {context.tools_tokens:,} · "
        f"summary with delimiters {context.summary_tokens:,} · messages {context.message_tokens:,}"
    )
    answer = context.estimated_response_tokens
    return [
        f"{MARK} threshold {threshold:,} ({share}) · reserve {reserve:,} · answer about {answer:,}",
        parts,
        *_what_is_left_out(context),
        *([OVER_WINDOW] if context.is_over_window else []),
    ]


def _what_is_left_out(context: ContextOut) -> list[str]:
    """Return a line on how far stages have reduced the prompt and which stage was last, if any has."""
    if context.last_stage is None or context.unreduced_tokens <= context.total_tokens:
        return []
    stage = one_line(context.last_stage, limit=30).replace("_", " ")
    return [f"shown {context.total_tokens:,} of {context.unreduced_tokens:,} tokens (last: {stage})"]


def _summary_lines(context: ContextOut) -> list[str]:
    lines = about_summaries(context, _made)
    if context.summary is None and context.summary_count:
        lines.append("/summaries lists the earlier versions.")
    if context.summary_failure is not None:
        failure = context.summary_failure
        lines.append(f"The last summary failed on {moment(failure.failed_at)}: {one_line(failure.reason, limit=300)}")
    return [*lines, *_resting(context.summariser)]


def _resting(summariser: SummariserOut | None) -> list[str]:
    """Return a line that says that the summary model failed and when it is tried again, if it failed."""
    if summariser is None or summariser.state == "closed":
        return []
    failed = f"The summary model {one_line(summariser.model, limit=100)} failed several times in a row"
    if summariser.state == "open":
        return [f"{failed}; it is not called for another {summariser.retry_after_seconds} seconds."]
    return [f"{failed}; the next summary calls it again."]


def _made(summary: ToldSummary) -> str:
    """Return when and by which model a summary was made."""
    model = f" by {one_line(summary.model, limit=100)}" if summary.model else ""
    return f", {moment(summary.created_at)}{model}"


def _quoted_in_last_turn(context: SessionContextOut) -> list[str]:
    """Return a line with the messages that the newest turn quoted and how well each matched, and one on memories."""
    lines = []
    if context.quoted is not None:
        found = zip(context.quoted.positions, context.quoted.scores, strict=False)
        places = ", ".join(f"#{position} ({score:.0%})" for position, score in found)
        lines.append(f"Quoted in the last turn: {places} in {context.quoted.tokens:,} tokens")
    if context.quoted_memories is not None:
        number, tokens = len(context.quoted_memories.memory_ids), context.quoted_memories.tokens
        lines.append(f"Quoted in the last turn: {number} of your memories in {tokens:,} tokens")
    return lines


MOST_ROWS = 24
"""Most lines of a preview below its head, so that it fits on one screen. The oldest are left out."""

STUBS = frozenset({"pruned", "pruned_aggressively"})
"""The service's names for the stages that only replace tool outputs by stubs."""

LESS_IS_SHOWN = "⚡ Older messages are left out or shortened."
REASONS: Mapping[str, str] = {
    "threshold": "the prompt is above the threshold",
    "messages": "there are enough new messages (max_messages_before_summary)",
    "tokens": "there are enough new tokens (max_tokens_before_summary)",
    "manual": "it was requested",
    "overflow": "the provider rejected the prompt as too long",
}
"""Texts for the causes of a compaction, by the service's names for them."""

SHOWN_FORMS: Mapping[str, str] = {"summarised": "summarized"}
HIDDEN = frozenset({"summarised", "trimmed", "left_out"})


@dataclass(frozen=True, slots=True)
class Row:
    """Consecutive messages that are shown in the same way."""

    first: int
    last: int
    count: int
    form: str
    reason: str
    tokens: int


def draw_preview(preview: PreviewOut, *, width: int) -> Text:
    """Return the plan: the prompt's size, what would happen before the call, and how each message would be shown."""
    share = percent(preview.tokens, preview.window)
    what = "Before the summary" if preview.action == "compact" else "The next call"
    head = f"{what}: {preview.tokens:,} of {preview.window:,} tokens ({share})"
    marks = f"threshold {preview.threshold_tokens:,} · budget {preview.budget_tokens:,}"
    style = "" if preview.action == "none" else "yellow"
    inner = width - len(INDENT)
    lines = [
        *(Text(line, style="bold") for line in wrapped(head, width=width)),
        *(Text(INDENT + line, style="dim") for line in wrapped(marks, width=inner)),
        *(Text(INDENT + line, style=style) for line in wrapped(_what_happens(preview), width=inner)),
        *_quoted(preview),
        *_rows(preview),
    ]
    return joined(lines, width=width)


def _quoted(preview: PreviewOut) -> Iterator[Text]:
    if preview.quoted:
        yield Text(f"{INDENT}quoted from the history: {', '.join(f'#{position}' for position in preview.quoted)}")
    if preview.quoted_memories:
        yield Text(f"{INDENT}quoted: {len(preview.quoted_memories)} of your memories")


def span(first: int, last: int) -> str:
    """Return a range of positions as the command line shows it: `#12` or `#12-#20`."""
    return f"#{first}" if first == last else f"#{first}-#{last}"


def _what_happens(preview: PreviewOut) -> str:
    text = _action(preview)
    if preview.fired:
        text += f" Stages: {', '.join(one_line(stage, limit=30).replace('_', ' ') for stage in preview.fired)}."
    if preview.floor_too_high and preview.action != "none":
        text += " What always stays (system prompt, tools, summary, pins, newest messages) leaves too little space."
    return text


def _action(preview: PreviewOut) -> str:
    cause = f", because {_reason(preview.cause)}" if preview.cause else ""
    match preview.action:
        case "none":
            return "Nothing is changed before it."
        case "prune":
            is_only_pruned = STUBS.issuperset(preview.fired)
            return "⚡ Old tool outputs are shown as stubs." if is_only_pruned else LESS_IS_SHOWN
        case "adopt":
            return f"⚡ Before the model is called, the prepared summary replaces older messages{cause}."
        case "compact":
            return f"⚡ Before the model is called, {_to_summarise(preview)} summarized{cause}."
        case "fit":
            return f"⚡ Messages are shortened or left out until the prompt fits{cause}."
        case other:
            return f"⚡ {one_line(other, limit=30)}{cause}."


def _reason(cause: str) -> str:
    """Return the text for a cause, or the name itself for a cause that only newer services have."""
    return REASONS.get(cause, one_line(cause, limit=20))


def _to_summarise(preview: PreviewOut) -> str:
    first = preview.summarise
    if first is None:
        return "older messages are"
    place = span(first.from_position, first.through_position)
    return f"1 message ({place}) is" if first.message_count == 1 else f"{first.message_count:,} messages ({place}) are"


def _rows(preview: PreviewOut) -> Iterator[Text]:
    rows = list(_rows_of(preview.messages))
    if preview.summarised_through:
        yield Text(f"{INDENT}{span(1, preview.summarised_through)} are in the summary", style="dim")
    if len(rows) > MOST_ROWS:
        left_out = rows[: len(rows) - MOST_ROWS]
        count = sum(row.count for row in left_out)
        yield Text(f"{INDENT}… {count:,} older messages up to #{left_out[-1].last}", style="dim")
    shown = rows[-MOST_ROWS:]
    places = [span(row.first, row.last) for row in shown]
    room = max(map(len, places), default=0)
    for row, place in zip(shown, places, strict=True):
        yield _row_line(row, f"{place:<{room}}")


def _row_line(row: Row, place: str) -> Text:
    tokens = "" if row.form in HIDDEN else f"{row.tokens:,} tokens"
    count = "" if row.count == 1 else f"{row.count:,}×"
    form = one_line(SHOWN_FORMS.get(row.form, row.form), limit=10)
    line = f"{INDENT}{place}  {count:>6} {form:<10} {tokens:>14}  {row.reason}".rstrip()
    return Text(line, style="dim" if row.form in HIDDEN else "")


def _rows_of(messages: Sequence[PreviewedMessage]) -> Iterator[Row]:
    for (form, reason, _, score), group in groupby(messages, key=_shown_alike):
        members = list(group)
        is_plain = form == "whole" and not members[0].pinned
        scored = () if score is None else (f"score {score:g}",)
        yield Row(
            first=members[0].position,
            last=members[-1].position,
            count=len(members),
            form=form,
            reason=", ".join((*scored, *(() if is_plain else (one_line(reason, limit=80),)))),
            tokens=sum(member.tokens for member in members),
        )


def _shown_alike(message: PreviewedMessage) -> tuple[str, str, bool, float | None]:
    return message.form, message.reason, message.pinned, message.score
