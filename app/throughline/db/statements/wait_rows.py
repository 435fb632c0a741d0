"""The stored form of waits, in the column `runs.wait`, and of client tools, in the column `runs.input`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from throughline.domain.json_types import JsonObject, JsonValue
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.waiting import AwaitedCall, Decision, Resolution, Wait, WaitKind

Stored = Mapping[str, Any]  # Any: as `wait_data` and `client_tools_data` write it


def wait_data(wait: Wait) -> JsonObject:
    """Return the stored form of a wait. Its end is stored in the column `waits_until`."""
    return {
        "fence": wait.fence,
        "calls": [{**asdict(awaited.call), "kind": awaited.kind.value} for awaited in wait.calls],
        "resolutions": [asdict(resolution) for resolution in wait.resolutions],
    }


def wait_from(stored: Stored | None, until: datetime | None) -> Wait | None:
    """Return the wait from the columns `wait` and `waits_until`; None if the run has none."""
    if stored is None or until is None:
        return None
    return Wait(
        calls=tuple(_awaited_from(call) for call in stored["calls"]),
        until=until,
        fence=stored["fence"],
        resolutions=tuple(_resolution_from(given) for given in stored["resolutions"]),
    )


def client_tools_data(tools: Sequence[ToolSpec]) -> dict[str, JsonValue]:
    """Return the members that are stored with the input: none without client tools."""
    return {"client_tools": [asdict(tool) for tool in tools]} if tools else {}


def client_tools_from(stored: Stored) -> tuple[ToolSpec, ...]:
    """Return the client tools in a stored input."""
    return tuple(ToolSpec(**tool) for tool in stored.get("client_tools", ()))


def _awaited_from(stored: Stored) -> AwaitedCall:
    call = ToolCall(id=stored["id"], name=stored["name"], arguments=stored["arguments"])
    return AwaitedCall(call, WaitKind(stored["kind"]))


def _resolution_from(stored: Stored) -> Resolution:
    decision = stored["decision"]
    return Resolution(**{**stored, "decision": None if decision is None else Decision(decision)})
