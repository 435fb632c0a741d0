"""Calls of `pre_compact` hooks, and which were given up and go on nevertheless: each that hangs holds a thread."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from throughline.ports.hooks import Hook, PreCompact


@dataclass(slots=True)
class HookCall:
    """One call of a hook, which may run in a thread or on a loop of its own; `is_running` holds until it has ended."""

    hook: Hook
    event: PreCompact
    is_running: bool = False

    @property
    def function(self) -> Callable[[], object]:
        """What to call, a coroutine function where the hook is one."""
        return self._await if inspect.iscoroutinefunction(self.hook) else self._call

    def _call(self) -> object:
        self.is_running = True
        try:
            made = self.hook(self.event)
        finally:
            self.is_running = False
        return self._await_rest(made) if inspect.isawaitable(made) else made

    async def _await(self) -> object:
        made = self.hook(self.event)
        return await self._await_rest(made) if inspect.isawaitable(made) else made

    async def _await_rest(self, made: Awaitable[object]) -> object:
        self.is_running = True
        try:
            return await made
        finally:
            self.is_running = False


@dataclass(slots=True)
class HangingHooks:
    """The calls of a process that were given up, by the name of their hook."""

    _calls: dict[str, list[HookCall]] = field(default_factory=dict)

    def give_up(self, name: str, call: HookCall) -> None:
        """Nobody waits for the call any more."""
        self._calls.setdefault(name, []).append(call)

    def is_hanging(self, name: str) -> bool:
        """Whether a call of the hook that was given up has still not ended."""
        running = [call for call in self._calls.pop(name, []) if call.is_running]
        if running:
            self._calls[name] = running
        return bool(running)
