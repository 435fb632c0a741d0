"""What a waiting run waits for as LangGraph's interrupts, and what a client resumes it with."""

import json
from collections.abc import Iterable, Mapping, Sequence

from throughline.chat_protocols.ask_agent import check_length
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import InvalidInput
from throughline.domain.run import Run
from throughline.domain.tool import (
    MAX_REASON,
    ApprovalDecision,
    AwaitedCall,
    Resolution,
    Wait,
    WaitKind,
    read_question,
)
from throughline.langgraph_api.messages import call_json
from throughline.wire.json_shape import JsonDict

RESUME = "command.resume"
DECISIONS: Mapping[str, ApprovalDecision] = {
    **dict.fromkeys(("approve", "accept"), ApprovalDecision.APPROVE),
    "edit": ApprovalDecision.EDIT,
    **dict.fromkeys(("reject", "ignore", "response", "respond"), ApprovalDecision.REJECT),
}
"""The words of LangChain's middleware for human decisions, and of the interrupts before it."""

DECISION_WORDS = (
    'Send {"decisions": [{"type": "approve"}]}, with the type "approve", "edit" (and `edited_action`) or "reject" '
    "(and `message`)."
)


def interrupts_of(run: Run) -> list[JsonValue]:
    """Return the interrupts of a run, one for each call that was given nothing yet. The id is that of the call."""
    wait = run.waiting_for
    return [] if wait is None else [{"id": one.id, "value": _value(one)} for one in wait.calls]


def _value(awaited: AwaitedCall) -> JsonDict:
    shown = call_json(awaited.call)
    match awaited.kind:
        case WaitKind.APPROVAL:
            action: JsonDict = {"name": awaited.name, "args": shown["args"]}
            allowed: JsonDict = {"action_name": awaited.name, "allowed_decisions": [*map(str, ApprovalDecision)]}
            return {"action_requests": [action], "review_configs": [allowed]}
        case WaitKind.ANSWER:
            question = read_question(awaited.arguments)
            return {"question": question.text, "options": [*question.options], "server": awaited.server}
        case WaitKind.TOOL_RESULT:
            return {"tool_call": shown}


def read_resume(wait: Wait, given: JsonValue, author: str | None) -> tuple[Resolution, ...]:
    """Return what the open calls of the wait are given: a value for the only one, or an object of values by id.

    `decisions` may have as many as calls wait for approval, in their order. Raises InvalidInput.
    """
    return tuple(_resolution(awaited, value, author) for awaited, value in _values(wait.open_calls, given))


def _values(open_calls: Sequence[AwaitedCall], given: JsonValue) -> Iterable[tuple[AwaitedCall, JsonValue]]:
    by_id = {awaited.id: awaited for awaited in open_calls}
    if isinstance(given, dict) and given and given.keys() <= by_id.keys():
        return [(by_id[name], value) for name, value in given.items()]
    decisions = _decisions(given)
    needed = [awaited for awaited in open_calls if awaited.kind is WaitKind.APPROVAL]
    if needed and len(decisions) == len(needed):
        return zip(needed, decisions, strict=True)
    if len(open_calls) == 1:
        return [(open_calls[0], given)]
    raise InvalidInput(
        f"The run waits for {len(open_calls)} calls. Send an object with a value for each id: {', '.join(by_id)}.",
        field=RESUME,
    )


def _decisions(given: JsonValue) -> list[JsonValue]:
    """Return the decisions of a list, or of the object with `decisions`; empty if it is neither."""
    found = given.get("decisions") if isinstance(given, dict) else given
    return found if isinstance(found, list) else []


def _resolution(awaited: AwaitedCall, value: JsonValue, author: str | None) -> Resolution:
    if awaited.kind is WaitKind.APPROVAL:
        return _decision(awaited, value, author)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    check_length(text, RESUME)
    return Resolution(awaited.id, text, author=author)


def _decision(awaited: AwaitedCall, value: JsonValue, author: str | None) -> Resolution:
    decisions = _decisions(value)
    match decisions[0] if len(decisions) == 1 else value:
        case dict() as decided:
            word = str(decided.get("type", decided.get("decision")))
        case bool() as is_approved:
            decided, word = {}, "approve" if is_approved else "reject"
        case str() as word:
            decided = {}
        case _:
            raise InvalidInput(f"The call {awaited.id!r} waits for a decision. {DECISION_WORDS}", field=RESUME)
    kind = DECISIONS.get(word)
    if kind is None:
        raise InvalidInput(f"The decision on the call {awaited.id!r} has no known type. {DECISION_WORDS}", field=RESUME)
    arguments = _edited(decided, awaited) if kind is ApprovalDecision.EDIT else None
    reason = ""
    if kind is ApprovalDecision.REJECT:
        given = (decided.get(name) for name in ("message", "reason", "args"))
        reason = next((text for text in given if isinstance(text, str)), "")
    check_length(reason, RESUME, MAX_REASON, "A reason")
    return Resolution(awaited.id, reason, decision=kind, arguments=arguments, author=author)


def _edited(decided: JsonDict, awaited: AwaitedCall) -> str:
    """Return the edited arguments as JSON text. Raises InvalidInput without them, or for another tool."""
    edited = decided.get("edited_action", decided.get("args"))
    action = edited if isinstance(edited, dict) else {}
    arguments = action.get("args", decided.get("arguments"))
    if not isinstance(arguments, dict):
        raise InvalidInput(
            f"The edit of the call {awaited.id!r} has no arguments. "
            'Send {"type": "edit", "edited_action": {"name": …, "args": {…}}}.',
            field=RESUME,
        )
    if action.get("name", action.get("action", awaited.name)) != awaited.name:
        raise InvalidInput(f"The call {awaited.id!r} is one of {awaited.name!r}, which an edit keeps.", field=RESUME)
    text = json.dumps(arguments, ensure_ascii=False)
    check_length(text, RESUME, subject="The JSON of edited arguments")
    return text
