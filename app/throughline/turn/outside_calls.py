"""Tool calls that need something from outside: which ones wait, and what becomes of a call once it was given something.

The tool node calls both functions for every call of a step.
"""

import json
from dataclasses import dataclass, replace

from throughline.domain.arguments import is_json_object
from throughline.domain.json_types import JsonObject
from throughline.domain.message import ToolCall
from throughline.domain.tool import ASK_USER, ToolOutcome
from throughline.domain.waiting import OUTSIDE, Decision, Resolution, WaitKind
from throughline.turn.state import TurnState, present

EXPIRED = "Nothing came from outside in time, so this call was given up. Do not call it again unless you are asked to."
INVALID = "The arguments are not valid: send one JSON object."


@dataclass(frozen=True, slots=True)
class ResolvedCall:
    """A call that does not wait: its outcome, or the call to run if `outcome` is None.

    `note` goes in front of the outcome of the call that is run, '' for nothing. `metadata` is stored with the result.
    """

    call: ToolCall
    outcome: ToolOutcome | None
    note: str = ""
    metadata: JsonObject | None = None


def wait_kind(state: TurnState, call: ToolCall) -> WaitKind | None:
    """Return what the call has to wait for; None if it can be answered now.

    A call whose arguments are no JSON object does not wait: the model gets an error for it. A call of the run's last
    wait does not wait again.
    """
    agent, wait = present(state.agent), state.claimed.run.wait
    is_offered = any(spec.name == call.name for spec in agent.tools)
    if not is_offered or not is_json_object(call.arguments):
        return None
    if wait is not None and wait.kind_of(call.id) is not None:
        return None
    if is_client_tool(state, call.name):
        return WaitKind.TOOL_RESULT
    if call.name == ASK_USER:
        return WaitKind.ANSWER
    return WaitKind.APPROVAL if call.name in agent.definition.needs_approval else None


def is_client_tool(state: TurnState, name: str) -> bool:
    """Return whether the turn's request brought the tool, so that the service cannot run it."""
    return any(spec.name == name for spec in present(state.agent).definition.request_tools)


def resolve_call(state: TurnState, call: ToolCall) -> ResolvedCall:
    """Return what becomes of a call that does not wait: its outcome from outside, or the call to run.

    A call of the run's last wait that was given nothing has expired.
    """
    wait = state.claimed.run.wait
    kind = None if wait is None else wait.kind_of(call.id)
    if wait is None or kind is None:
        is_invalid = is_client_tool(state, call.name) and not is_json_object(call.arguments)
        return ResolvedCall(call, ToolOutcome(INVALID, is_error=True) if is_invalid else None)
    given = wait.resolution_for(call.id)
    if given is None:
        return ResolvedCall(call, ToolOutcome(EXPIRED, is_error=True), metadata={OUTSIDE: "expired"})
    if kind is WaitKind.APPROVAL:
        return _decided(call, given)
    return ResolvedCall(call, ToolOutcome(given.text, given.is_error), metadata=_origin(given, kind))


def _decided(call: ToolCall, given: Resolution) -> ResolvedCall:
    metadata = {**_origin(given, WaitKind.APPROVAL), "decision": str(given.decision)}
    if given.decision is Decision.REJECT:
        reason = f"Reason: {given.text}" if given.text else "No reason was given."
        refusal = f"A person rejected this call, so it was not run. {reason}"
        told = {"reason": given.text} if given.text else {}
        return ResolvedCall(call, ToolOutcome(refusal, is_error=True), metadata={**metadata, **told})
    if given.decision is Decision.EDIT and given.arguments is not None:
        note = f"A person changed the arguments to {given.arguments} before the call was run."
        return ResolvedCall(
            replace(call, arguments=given.arguments),
            None,
            note=note,
            metadata={**metadata, "arguments": json.loads(given.arguments)},
        )
    return ResolvedCall(call, None, metadata=metadata)


def _origin(given: Resolution, kind: WaitKind) -> dict[str, str]:
    return {OUTSIDE: kind.value, **({} if given.author is None else {"given_by": given.author})}
