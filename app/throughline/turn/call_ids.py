"""Ids of the tool calls of one step, distinct from those of the run's earlier calls.

Some servers number calls from 0 in every answer. A model knows only the ids in its prompt, which may no longer show
earlier calls.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace

from throughline.domain.message import ToolCall


class CallIds:
    """The ids that readers and storage get for the calls of one step."""

    def __init__(self, taken: Collection[str]) -> None:
        """Give no call an id of `taken`."""
        self._taken = taken
        self._given: dict[str, str] = {}

    def of(self, call_id: str) -> str:
        """Return the id for the call that the model gave `call_id`: a new one if an earlier call has it."""
        if call_id not in self._given:
            self._given[call_id] = _new_id() if call_id in self._taken else call_id
        return self._given[call_id]

    def apply(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Return the step's calls with their ids. Of several calls with one id, only the first has the id of `of`."""
        used: set[str] = set()
        changed = []
        for call in calls:
            call_id = self.of(call.id)
            call_id = _new_id() if call_id in used else call_id
            used.add(call_id)
            changed.append(replace(call, id=call_id))
        return tuple(changed)


def _new_id() -> str:
    return f"call_{secrets.token_hex(12)}"
