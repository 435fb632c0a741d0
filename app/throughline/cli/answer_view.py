"""Printing of an answer while it is written: its text, and dimmed remarks on tools and the context."""

from throughline.cli.answer_stream import AnswerEvent, ConnectionCut
from throughline.cli.context_gauges import percent
from throughline.cli.failures import AnswerFailed
from throughline.cli.history_views import text_of
from throughline.cli.printable import one_line
from throughline.cli.screen import Screen
from throughline.wire.context import ContextOut, HistoryQuoted
from throughline.wire.events import (
    CompactionFinished,
    CompactionStarted,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    Reset,
    RunCancelled,
    RunCompleted,
    RunEnded,
    RunFailed,
    RunStarted,
    RunWaiting,
    ToolCallDelta,
    ToolResult,
)
from throughline.wire.messages import MessageOut, ToolCallOut

LESS_SHOWN = frozenset({"pruned", "fitted"})
SHOWN_ARGUMENTS, SHOWN_RESULT = 120, 160


class AnswerView:
    """Printer of the events of one answer. `answer` is the stored message once the run has ended with one."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._has_text = False
        self._is_reasoning = False
        self.answer: MessageOut | None = None

    def show(self, event: AnswerEvent) -> None:
        """Print one event. Raises AnswerFailed if the turn ended with an error."""
        is_next = self._is_reasoning and isinstance(event, ReasoningDelta)
        self._is_reasoning = isinstance(event, ReasoningDelta)
        if isinstance(event, Reset):
            self._screen.end_line()
        match event:
            case ReasoningDelta():
                if not is_next:
                    self._screen.note("thinking…")
            case MessageDelta(text=text):
                self._has_text = True
                self._screen.write(text)
            case MessageCompleted(message=message):
                self._show_whole(message)
            case RunCompleted() | RunFailed() | RunCancelled():
                self._show_end(event)
            case RunStarted() | RunWaiting() | ToolCallDelta():
                pass
            case _:
                self._has_text = self._has_text and not isinstance(event, Reset)
                self._screen.note(_remark(event))

    def _show_whole(self, message: MessageOut) -> None:
        """End a message. Print its whole text if its pieces were lost together with their events."""
        if not self._has_text and message.role == "assistant":
            self._screen.write(text_of(message))
        self._has_text = False
        self._screen.end_line()

    def _show_end(self, end: RunEnded) -> None:
        self._screen.end_line()
        match end:
            case RunFailed(error=error):
                raise AnswerFailed(error.detail or "The turn failed.")
            case RunCancelled():
                self._screen.note("stopped")
            case RunCompleted(context=context, message=message):
                self.answer = message
                if context is not None and self._screen.is_terminal:
                    self._screen.note(_fill(context))


def _remark(
    event: ToolCallOut | ToolResult | CompactionStarted | CompactionFinished | HistoryQuoted | Reset | ConnectionCut,
) -> str:
    match event:
        case CompactionStarted() | CompactionFinished() | HistoryQuoted():
            return _about_context(event)
        case ToolCallOut(name=name, arguments=arguments):
            return f"{name} {one_line(arguments, limit=SHOWN_ARGUMENTS)}"
        case ToolResult(name=name, content=content, is_error=is_error):
            verb = "failed" if is_error else "returned"
            return f"{name} {verb}: {one_line(content, limit=SHOWN_RESULT)}"
        case Reset():
            return "the answer starts again"
        case ConnectionCut(attempt=attempt):
            return f"connection lost, trying again ({attempt})"


def _about_context(event: CompactionStarted | CompactionFinished | HistoryQuoted) -> str:
    match event:
        case CompactionStarted(tokens=tokens):
            return f"making the prompt smaller ({tokens:,} tokens in the prompt) …"
        case CompactionFinished():
            return _compacted(event)
        case HistoryQuoted(positions=positions, tokens=tokens):
            return f"quotes {', '.join(f'#{position}' for position in sorted(positions))} ({tokens:,} tokens)"


def _compacted(event: CompactionFinished) -> str:
    size = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
    if event.outcome in LESS_SHOWN:
        how = ", ".join(one_line(stage, limit=30).replace("_", " ") for stage in event.fired)
        return f"prompt reduced{f' ({how})' if how else ''}: {size}"
    is_adopted = event.outcome == "adopted"
    through = f", messages up to #{event.through_position} summarized" if is_adopted else ""
    return f"summary {one_line(event.outcome, limit=20)}: {size}{through}"


def _fill(context: ContextOut) -> str:
    share = percent(context.total_tokens, context.context_window)
    return f"{context.total_tokens:,} of {context.context_window:,} tokens ({share}){_coming(context)}"


def _coming(context: ContextOut) -> str:
    if context.is_compacting_next:
        return " · ⚡ the next message triggers a compaction"
    is_due = context.next_action == "prepare" and context.prepared is None
    return " · a summary is due and prepared in the background" if is_due else ""
