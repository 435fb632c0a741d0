"""Drawing of the plan for a model call: pure functions that return text of limited width."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from throughline.cli.context_gauges import INDENT, percent
from throughline.cli.printable import joined, one_line, wrapped
from throughline.wire.context import PreviewedMessage, PreviewOut

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
