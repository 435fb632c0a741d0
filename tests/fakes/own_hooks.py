"""`pre_compact` hooks by name, as an operator might write them: polite ones and broken ones."""

import asyncio
import threading
from collections.abc import Mapping

from throughline.domain.errors import SettingInvalid
from throughline.ports.hooks import Decision, Hook, PreCompact

blocked = threading.Event()
"""Never set: waiting for it is a hook that hangs."""

SUMMARY = "## Intent\nWritten by the operator's own hook [#1-#6]."


def cancels(_event: PreCompact) -> Decision:
    return Decision(cancel=True)


def add_instructions(_event: PreCompact) -> Decision:
    return Decision(instructions="mind the operator's instructions")


async def writes(_event: PreCompact) -> Decision:
    await asyncio.sleep(0)
    return Decision(summary=SUMMARY)


def writes_nothing_useful(_event: PreCompact) -> Decision:
    return Decision(summary="Error: 500")


def raises(_event: PreCompact) -> None:
    raise ValueError("the text of an error may hold anything")


async def raises_later(_event: PreCompact) -> None:
    await asyncio.sleep(0)
    raise ValueError("the text of an error may hold anything")


def gives_up(_event: PreCompact) -> None:
    raise SystemExit(3)


async def cancels_itself(_event: PreCompact) -> None:
    raise asyncio.CancelledError


async def interrupts(_event: PreCompact) -> None:
    raise KeyboardInterrupt


async def blocks(_event: PreCompact) -> None:
    blocked.wait(10)  # the end of the tests does not wait for it: its thread is a daemon


def hangs(_event: PreCompact) -> None:
    blocked.wait()


async def hangs_and_will_not_be_cancelled(_event: PreCompact) -> None:
    for _ in range(2):  # the end of the event loop cancels once more
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def talks_nonsense(_event: PreCompact) -> Decision:
    return {"cancel": True}  # type: ignore[return-value]  # that is what is wrong with it


def answers_with_numbers(_event: PreCompact) -> Decision:
    return Decision(summary=7)  # type: ignore[arg-type]  # that is what is wrong with it


class Undecided:
    """Neither true nor false, as an array of numbers is."""

    def __bool__(self) -> bool:
        raise ValueError("the text of an error may hold anything")


def answers_with_what_is_neither(_event: PreCompact) -> Decision:
    return Decision(cancel=Undecided())  # type: ignore[arg-type]  # that is what is wrong with it


class _Breaks(Decision):
    @property
    def _told(self) -> str:
        raise SystemExit(3)

    instructions = _told


def answers_with_what_breaks(_event: PreCompact) -> Decision:
    return _Breaks.__new__(_Breaks)


class Remembers:
    """Goes on, and keeps what it was told."""

    def __init__(self, decision: Decision | None = None) -> None:
        self.told: list[PreCompact] = []
        self._decision = decision

    def __call__(self, event: PreCompact) -> Decision | None:
        self.told.append(event)
        return self._decision


class OwnHooks:
    """Implements `Hooks` over a table."""

    def __init__(self, found: Mapping[str, Hook] | None = None) -> None:
        self.found = dict(found or {})

    def get(self, name: str) -> Hook:
        if name not in self.found:
            raise SettingInvalid(f"pre_compact {name!r}: there is no such hook here")
        return self.found[name]
