"""Sending one message and printing its answer, with questions for what its run waits for.

Ctrl-C stops the answer, not the chat.
"""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TypeAlias

from throughline.cli.chat.answer_stream import RETRY_DELAYS_SECONDS, AnswerEvent, AnswerStream, ConnectionCut
from throughline.cli.chat.ask_person import ask_and_resume
from throughline.cli.chat.state import ChatState, remark_on_answer
from throughline.cli.client import AnswerFailed, TurnWaits, with_provider_message
from throughline.cli.history_views import text_of
from throughline.cli.printable import one_line
from throughline.cli.screen import REDRAW_SECONDS, Screen
from throughline.domain.errors import ThroughlineError
from throughline.wire.context import ContextOut, HistoryQuoted, MemoriesQuoted
from throughline.wire.events import (
    CompactionFinished,
    CompactionStarted,
    GraphEvent,
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
    ToolProgress,
    ToolResult,
)
from throughline.wire.gauges import is_only_fitted, percent
from throughline.wire.messages import MessageOut, ToolCallOut
from throughline.wire.sessions import SessionOut

AboutContext: TypeAlias = CompactionStarted | CompactionFinished | HistoryQuoted | MemoriesQuoted
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
    event: ToolCallOut | ToolProgress | GraphEvent | ToolResult | AboutContext | Reset | ConnectionCut,
) -> str:
    match event:
        case CompactionStarted() | CompactionFinished() | HistoryQuoted() | MemoriesQuoted():
            return _about_context(event)
        case ToolCallOut(name=name, arguments=arguments):
            return f"{name} {one_line(arguments, limit=SHOWN_ARGUMENTS)}"
        case ToolProgress() | GraphEvent():
            return one_line(_progress(event), limit=SHOWN_RESULT)
        case ToolResult(name=name, content=content, is_error=is_error):
            verb = "failed" if is_error else "returned"
            return f"{name} {verb}: {one_line(content, limit=SHOWN_RESULT)}"
        case Reset():
            return "the answer starts again"
        case ConnectionCut(attempt=attempt):
            return f"connection lost, trying again ({attempt})"


def _progress(event: ToolProgress | GraphEvent) -> str:
    if isinstance(event, GraphEvent):
        return event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
    done = f"{event.progress:g}" if event.total is None else f"{event.progress:g} of {event.total:g}"
    return f"… {done} {event.message}"


def _about_context(event: AboutContext) -> str:
    match event:
        case CompactionStarted(tokens=tokens):
            return f"making the prompt smaller ({tokens:,} tokens in the prompt) …"
        case CompactionFinished():
            return _compacted(event)
        case HistoryQuoted(positions=positions, tokens=tokens):
            return f"quotes {', '.join(f'#{position}' for position in sorted(positions))} ({tokens:,} tokens)"
        case MemoriesQuoted(memory_ids=memory_ids, tokens=tokens):
            return f"quotes {len(memory_ids)} of your memories ({tokens:,} tokens)"


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
    if is_only_fitted(context):
        return " · ⚡ the next message leaves out what does not fit"
    if context.is_compacting_next:
        return " · ⚡ the next message triggers a compaction"
    is_due = context.next_action == "prepare" and context.prepared is None
    return " · a summary is due and prepared in the background" if is_due else ""


SHOWN_TITLE = 60
NOT_SENT = "The turn before waits, so this message was not sent. /pending asks again, /cancel ends that turn."


async def answer(state: ChatState, content: str) -> None:
    """Send `content` and print the answer, in a new session if there is none yet.

    Raises the errors of the client, AnswerFailed if the turn failed, and TurnWaits if the turn before waits, so that
    the message was not sent, or if this turn waits for something that cannot be asked here.
    """
    if state.session is not None and await state.client.waiting_run(state.session.id) is not None:
        raise TurnWaits(NOT_SENT)
    session = await _session_of(state, content)
    stream = AnswerStream(state.client, session.id, content, retry_delays=RETRY_DELAYS_SECONDS, model=state.model)
    await print_answer(state, stream)


async def print_answer(state: ChatState, stream: AnswerStream) -> None:
    """Print the answer, and ask what its run waits for, until the run ends or the user leaves it waiting.

    Raises the errors of `answer`.
    """
    while await Answering(state, stream).run():
        if not await ask_and_resume(state, stream.run_id):
            return


async def ask_pending(state: ChatState) -> bool:
    """Print the waiting turn of the chat's session and ask what it waits for. Return False if no turn waits.

    Raises the errors of `answer`.
    """
    run = None if state.session is None else await state.client.waiting_run(state.session.id)
    if run is None:
        return False
    await print_answer(state, AnswerStream.of_run(state.client, run, retry_delays=RETRY_DELAYS_SECONDS))
    return True


class Answering:
    """One answer in progress. The first Ctrl-C cancels the run, the second stops waiting for the answer."""

    def __init__(self, state: ChatState, stream: AnswerStream) -> None:
        self._state = state
        self._stream = stream
        self._reading: asyncio.Task[None] | None = None
        self._cancelling: asyncio.Task[None] | None = None

    async def run(self) -> bool:
        """Print the answer until it is over or the user has stopped waiting for it. Return whether its run waits."""
        self._reading = asyncio.create_task(self._read())
        try:
            with _on_interrupt(self._interrupted):
                await asyncio.wait({self._reading})
        finally:
            self._reading.cancel()
            self._state.screen.end_line()
            if self._cancelling is not None:
                self._cancelling.cancel()
        if self._reading.cancelled():
            self._state.screen.note("no longer waiting; /history shows the answer once it is stored")
            return False
        self._reading.result()
        return self._stream.is_waiting

    async def _read(self) -> None:
        view = AnswerView(self._state.screen)
        loop = asyncio.get_running_loop()
        later = loop.call_soon(self._state.screen.catch_up)
        async with aclosing(self._stream.events()) as events:
            async for event in events:
                later.cancel()
                await self._show(view, event)
                later = loop.call_later(REDRAW_SECONDS, self._state.screen.catch_up)
        if view.answer is not None:
            await remark_on_answer(self._state, view.answer)

    async def _show(self, view: AnswerView, event: AnswerEvent) -> None:
        try:
            view.show(event)
        except AnswerFailed as failed:
            raise AnswerFailed(with_provider_message(failed.detail, await self._provider_message())) from failed

    async def _provider_message(self) -> str:
        """Return what the model's provider said about the failed turn; '' if the caller may not read it."""
        try:
            run = await self._state.client.get_run(self._stream.run_id)
        except ThroughlineError:
            return ""
        return run.error.provider_message if run.error is not None else ""

    def _interrupted(self) -> None:
        if self._cancelling is None:
            self._state.screen.note("stopping the answer; Ctrl-C again to stop waiting for it")
            self._cancelling = asyncio.create_task(self._cancel())
        elif self._reading is not None:
            self._reading.cancel()

    async def _cancel(self) -> None:
        await self._stream.run_known.wait()
        try:
            await self._state.client.cancel_run(self._stream.run_id)
        except ThroughlineError as error:
            self._state.screen.error(error.detail)


async def _session_of(state: ChatState, content: str) -> SessionOut:
    """Return the chat's session. The first message creates it and gives it its title."""
    if state.session is None:
        title = " ".join(content[: SHOWN_TITLE * 4].split())[:SHOWN_TITLE]
        state.session = await state.client.create_session(state.agent, title=title)
    return state.session


@contextmanager
def _on_interrupt(callback: Callable[[], None]) -> Iterator[None]:
    """Call `callback` in the running loop at each Ctrl-C, and restore the previous handler afterwards.

    If the loop cannot handle signals (outside of the main thread), Ctrl-C keeps its usual effect.
    """
    loop = asyncio.get_running_loop()
    previous = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, callback)
    except (NotImplementedError, RuntimeError, ValueError):  # the loop's ways to say that it cannot
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)
