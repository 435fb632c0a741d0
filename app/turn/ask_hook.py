"""Asking an agent's `pre_compact` hook, at nobody's cost but its own: it may raise, hang or answer nonsense."""

import asyncio
import contextvars
import inspect
import threading
from contextlib import suppress
from dataclasses import replace

import structlog

from app.domain.errors import SettingInvalid
from app.domain.text import clean_text
from app.turn.pre_compact import Decision, Hook, PreCompact
from app.turn.state import TurnParts

HOOK_SECONDS = 5.0
SHARE_OF_LIMIT = 0.5
"""A hook may use this share of a compaction's time at most: the summary itself needs the rest."""

GO_ON = Decision()
log = structlog.get_logger(__name__)


async def ask_hook(parts: TurnParts, name: str, event: PreCompact, *, limit_seconds: float) -> Decision:
    """Return what the hook `name` decides within its share of `limit_seconds`; to go on, where there is none.

    A hook that failed several times in a row is left alone for a while.
    """
    key = f"pre_compact:{name}"
    if not name or not parts.breakers.may_call(key):
        return GO_ON
    try:
        decision = await _decide(parts.hooks.get(name), event, min(HOOK_SECONDS, SHARE_OF_LIMIT * limit_seconds))
    except asyncio.CancelledError:
        parts.breakers.released(key)
        raise
    except (_HookFailedError, SettingInvalid) as error:
        parts.breakers.failed(key)
        log.warning("pre_compact hook failed", hook=name, error=str(error) if _is_ours(error) else "SettingInvalid")
        return GO_ON
    parts.breakers.succeeded(key)
    return decision


class _HookFailedError(Exception):
    """The hook gave no decision; the text names the class of what happened, never what it said."""


def _is_ours(error: Exception) -> bool:
    return isinstance(error, _HookFailedError)


async def _decide(hook: Hook, event: PreCompact, seconds: float) -> Decision:
    """Run the hook in a task that is left to itself when its time is up: it may not even let itself be cancelled."""
    task = asyncio.create_task(_run(hook, event))
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _abandoned.add(task)
            task.add_done_callback(_forget)
    if not done or task.cancelled():
        raise _HookFailedError("CancelledError" if done else "TimeoutError")
    return _checked(task.result())


_abandoned: set["asyncio.Task[object]"] = set()
"""Keeps tasks alive until they end, as the event loop itself does not."""


def _forget(task: "asyncio.Task[object]") -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that nobody warns of it


async def _run(hook: Hook, event: PreCompact) -> object:
    try:
        answer: object = hook(event) if _is_async(hook) else await _in_thread(hook, event)
        return await answer if inspect.isawaitable(answer) else answer
    except (Exception, SystemExit) as error:  # the operator's code may fail in any way
        raise _HookFailedError(type(error).__name__) from error


def _is_async(hook: Hook) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004  # not whether it can be called, but how


async def _in_thread(hook: Hook, event: PreCompact) -> object:
    """Call a plain function in a thread of its own: one that hangs holds up no other thread, nor our own end."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    answered: asyncio.Future[object] = loop.create_future()

    def call() -> None:
        try:
            answer: object = context.run(hook, event)
        except BaseException as error:  # noqa: BLE001  # handed over to whoever waits
            _hand_over(loop, answered, error=error)
        else:
            _hand_over(loop, answered, answer=answer)

    threading.Thread(target=call, name="pre_compact", daemon=True).start()
    return await answered


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    answered: "asyncio.Future[object]",
    *,
    answer: object = None,
    error: BaseException | None = None,
) -> None:
    def settle() -> None:
        if answered.done():
            return
        if error is None:
            answered.set_result(answer)
        else:
            answered.set_exception(_HookFailedError(type(error).__name__))

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(settle)


def _checked(answer: object) -> Decision:
    """Return the decision with its texts cleaned; None means to go on."""
    if answer is None:
        return GO_ON
    if not isinstance(answer, Decision):
        raise _HookFailedError(f"answered {type(answer).__name__}")
    texts: tuple[object, ...] = (answer.instructions, answer.summary)  # what they are is the operator's word only
    if not all(isinstance(text, str) for text in texts):
        raise _HookFailedError("answered a Decision whose texts are none")
    return replace(
        answer,
        cancel=bool(answer.cancel),
        instructions=clean_text(answer.instructions),
        summary=clean_text(answer.summary),
    )
