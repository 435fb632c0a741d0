"""Calls of plugins: tools, hooks and token counters that operators write.

Each call runs in a daemon thread; an awaitable gets its own event loop there. A plugin may block, hang, raise anything
or ignore cancellation. That costs only its thread and its caller's time limit.
"""

import asyncio
import contextlib
import contextvars
import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from throughline.domain.errors import SettingInvalid, class_and_text, only_cause_of
from throughline.execution.compute_threads import LimitReached, OwnerLimits, present_owner
from throughline.execution.error_boundary import Outcome, Raised, Returned, outcome_of


def add_plugin_folder(folder: Path) -> None:
    """Let plugins be imported from the folder. It comes last, so that no file in it can replace an installed module."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def import_plugin(path: str, *, kind: str) -> object:
    """Import the plugin named by `path`, which is `module:attribute`, and return that attribute.

    Raises SettingInvalid, which says which half is wrong. `kind` names the plugin's purpose; the error text begins with
    it.
    """
    module_name, _, attribute = path.partition(":")
    module = _import_module(f"{kind} {path!r}", module_name)
    try:
        found: object = getattr(module, attribute)
    except AttributeError as error:
        raise SettingInvalid(f"{kind} {path!r}: the module {module_name} has no attribute {attribute!r}") from error
    return found


T = TypeVar("T")


def make_with_plugin(make: Callable[[], T], origin: str, step: str) -> T:
    """Return what an operator's code makes at the start. Raises SettingInvalid if it fails.

    The error begins with `origin`, the plugin, and names the `step` that failed.
    """
    match outcome_of(make):
        case Returned(made):
            return made
        case Raised(error):
            raise SettingInvalid(f"{origin}: {_reason_of(only_cause_of(error), step)}") from error


def _import_module(origin: str, module_name: str) -> ModuleType:
    return make_with_plugin(lambda: importlib.import_module(module_name), origin, f"importing {module_name}")


def _reason_of(error: BaseException, step: str) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return f"{step} failed with {class_and_text(error)}"
    return (
        f"there is no module {error.name!r}; put its file beside the agent files (AGENTS_DIR), install it beside this "
        "service, or put its folder into PYTHONPATH"
    )


MAX_THREADS = 1_000
"""Most concurrent plugin calls in a process: two per possible open turn (WORKER_CONCURRENCY).

It is below the thread limits of systems and containers. A hanging call keeps its thread until the process ends.
"""

MAX_THREADS_OF_OWNER = 250
"""Most concurrent plugin calls of one user, so that one user's slow plugins cannot block the plugins of others."""

_threads = OwnerLimits(MAX_THREADS, MAX_THREADS_OF_OWNER)


class PluginTimedOut(Exception):
    """The plugin did not return within its time limit."""


class ThreadLimitReached(Exception):
    """The plugin was not called, because no thread was free."""


async def call_plugin(
    function: Callable[[], object], read: Callable[[object], T], timeout_seconds: float
) -> Outcome[T]:
    """Call `function`, await its result if that is awaitable, and return the outcome of `read` on the result.

    `read` runs in the plugin's thread too, since converting the plugin's objects may run its code.
    """
    return await PluginCall(function, read).outcome(timeout_seconds)


class PluginCall(Generic[T]):
    """One call of a plugin, run with the caller's context variables.

    A call that times out is cancelled if it awaits something. A thread cannot be stopped, so it continues and its
    result is ignored.
    """

    def __init__(self, function: Callable[[], object], read: Callable[[object], T]) -> None:
        """Prepare the call; `outcome` or `wait` starts it."""
        self._function = function
        self._read = read
        self._owner_id = present_owner()
        self._outcome: Future[Outcome[T]] = Future()
        self._is_given_up = False
        self._cancel: Callable[[], object] | None = None
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._run,), name="plugin", daemon=True
        )

    @property
    def is_hanging(self) -> bool:
        """Whether the call timed out and still occupies its thread."""
        return self._is_given_up and self._thread.is_alive()

    async def outcome(self, timeout_seconds: float) -> Outcome[T]:
        """Return the outcome: a value or Raised, which holds PluginTimedOut or ThreadLimitReached if these occur."""
        self._begin()
        outcome = asyncio.wrap_future(self._outcome)
        try:
            await asyncio.wait({outcome}, timeout=timeout_seconds)
            return outcome.result() if outcome.done() else Raised(PluginTimedOut())
        finally:
            if not outcome.done():
                self._give_up()
                outcome.cancel()

    def wait(self, timeout_seconds: float) -> Outcome[T]:
        """Return the outcome like `outcome`, but block the calling thread."""
        self._begin()
        try:
            return self._outcome.result(timeout_seconds)
        except TimeoutError:
            self._give_up()
            return Raised(PluginTimedOut())

    def _begin(self) -> None:
        taken = _threads.take(self._owner_id)
        if taken is not None:
            self._settle(Raised(ThreadLimitReached(_reason(taken))))
            return
        try:
            self._thread.start()
        except RuntimeError:
            _threads.give_back(self._owner_id)
            self._settle(Raised(ThreadLimitReached("the system gives this process no further thread")))

    def _give_up(self) -> None:
        self._is_given_up = True  # before `_cancel` is read: the thread sets `_cancel` before it reads this
        self._outcome.cancel()
        if self._cancel is not None:
            with contextlib.suppress(RuntimeError):  # the plugin's event loop has ended
                self._cancel()

    def _run(self) -> None:
        """Make the call; this runs in the plugin's thread."""
        if self._outcome.set_running_or_notify_cancel():
            self._settle(outcome_of(self._call))
        _threads.give_back(self._owner_id)

    def _call(self) -> T:
        made = self._function()
        return asyncio.run(self._await(made)) if inspect.isawaitable(made) else self._read(made)

    async def _await(self, made: Awaitable[object]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._cancel = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
        if self._is_given_up:
            task.cancel()
        try:  # settled before asyncio.run() cleans up tasks and threads that the plugin left
            value = self._read(await made)
        except BaseException as error:
            self._settle(Raised(error))
            raise
        self._settle(Returned(value))
        return value

    def _settle(self, outcome: Outcome[T]) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)


def _reason(taken: LimitReached) -> str:
    match taken:
        case LimitReached.BY_ALL:
            return f"{MAX_THREADS} plugin calls are under way in this process, the most it takes"
        case LimitReached.BY_OWNER:
            return f"{MAX_THREADS_OF_OWNER} plugin calls of this user are under way, the most of one"
