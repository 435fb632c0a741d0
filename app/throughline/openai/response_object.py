"""The response object of OpenAI's Responses interface, made from one part of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.agents.definition import AgentDefinition
from throughline.chat_protocols.follow_part import FollowedPart, RunPart, echo_of, messages_of, part_usage, split_run
from throughline.db.runs.repository import ContinuedRun
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import JsonObject, JsonValue, SessionId
from throughline.domain.elicitation import call_of_question
from throughline.domain.errors import NotFound
from throughline.domain.events import RunEnded, RunWaiting
from throughline.domain.message import REDACTED_TEXT, Message
from throughline.domain.prompt import ToolSpec, Usage
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import OUTSIDE, Resolution, WaitKind, matches_result
from throughline.http.call import Call
from throughline.openai.output_items import (
    CallKinds,
    JsonDict,
    ResponseRef,
    conversation_id,
    items_of,
    question_items,
    response_not_found,
)
from throughline.openai.read_request import NOT_APPLIED
from throughline.wire.events import UNKNOWN_ERROR

STATUSES = {
    RunStatus.QUEUED: "queued",
    RunStatus.RUNNING: "in_progress",
    RunStatus.WAITING: "completed",
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "cancelled",
}
FIXED: JsonDict = {
    "parallel_tool_calls": True,
    "max_tool_calls": None,
    "truncation": "auto",
    "reasoning": {"effort": None, "summary": None},
    "top_logprobs": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "service_tier": "default",
}
"""Fields that every response has with the same value, because a request cannot set them."""

RATE_LIMITS = {"model_rate_limited", "daily_budget_spent", "daily_budget_reserved"}
DELETED = "deleted"
"""Key in the echo of a part whose response was deleted."""

ECHOED = ("safety_identifier", "prompt_cache_key", "user")


@dataclass(frozen=True, slots=True)
class RunResponse:
    """One part of a run, with all that its response object shows. `agent` is None if it no longer exists."""

    run: Run
    part: RunPart
    kinds: CallKinds
    agent: AgentDefinition | None = None

    @property
    def ref(self) -> ResponseRef:
        return ResponseRef(self.run.id, self.part.number)

    @property
    def echo(self) -> JsonObject:
        """What the request of this part said that the service only shows again."""
        return echo_of(self.run, self.part.number)

    @property
    def is_over(self) -> bool:
        """Whether the part has ended: with its run, or with a wait."""
        return not self.part.is_last or not self.run.status.needs_worker

    @property
    def status(self) -> str:
        return STATUSES[self.run.status] if self.part.is_last else "completed"


def awaited_kinds(messages: Sequence[Message]) -> dict[str, WaitKind]:
    """Return, by call id, what each call waited for whose result is among `messages`."""
    known = {kind.value: kind for kind in WaitKind}
    return {
        message.tool_call_id: known[str(message.metadata[OUTSIDE])]
        for message in messages
        if message.tool_call_id is not None and str(message.metadata.get(OUTSIDE)) in known
    }


def call_kinds(run: Run, messages: Sequence[Message]) -> CallKinds:
    """Return what the calls of the run wait for, or have waited for."""
    found = awaited_kinds(messages)
    if run.wait is not None:
        found |= {awaited.id: awaited.kind for awaited in run.wait.calls}
    return CallKinds(frozenset(tool.name for tool in run.input.client_tools), found)


def responses_of(run: Run, messages: Sequence[Message], agent: AgentDefinition | None) -> tuple[RunResponse, ...]:
    """Return one response for each part of the run, in order, at least one. `messages` are all of the run's."""
    kinds = call_kinds(run, messages)
    return tuple(RunResponse(run, part, kinds, agent) for part in split_run(run, messages))


def response_json(response: RunResponse) -> JsonDict:
    """Return the response object with the items that are stored by now."""
    run, part, echo = response.run, response.part, response.echo
    status, reason = response.status, None
    made = part.made if part.is_last or status == "completed" else ()
    if status == "completed" and made and made[-1].metadata.get("finish_reason") == "length":
        status, reason = "incomplete", "max_output_tokens"
    is_over = status not in {"queued", "in_progress"}
    overrides = run.input.overrides
    return {
        "id": str(response.ref),
        "object": "response",
        "created_at": echo.get("created_at", int(run.created_at.timestamp())),
        "completed_at": _completed_at(response) if status == "completed" else None,
        "status": status,
        "error": _error_json(run) if status == "failed" else None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "background": echo.get("background", False),
        "conversation": {"id": conversation_id(run.session_id)} if echo.get("has_conversation") else None,
        "previous_response_id": echo.get("previous_response_id"),
        "instructions": overrides.instructions,
        "model": run.agent,
        "output": [*items_of(made, response.kinds), *_questions(response)] if is_over else [],
        "tools": [tool_json(tool) for tool in run.input.client_tools],
        "tool_choice": _tool_choice(run),
        "max_output_tokens": overrides.max_output_tokens,
        "text": {"format": _format_json(run)},
        **_parameters(response),
        **FIXED,
        "store": echo.get("store", True),
        "usage": _usage_json(response) if is_over else None,
        "metadata": echo.get("metadata", {}),
        **{name: echo.get(name) for name in ECHOED},
        **({NOT_APPLIED: echo[NOT_APPLIED]} if NOT_APPLIED in echo else {}),
    }


def tool_json(tool: ToolSpec) -> JsonDict:
    """Return a client's tool as the request named it."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or None,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,
    }


def _completed_at(response: RunResponse) -> int:
    run, made = response.run, response.part.made
    if response.part.is_last and run.finished_at is not None:
        return int(run.finished_at.timestamp())
    return int((made[-1].created_at if made else run.created_at).timestamp())


def _error_json(run: Run) -> JsonDict:
    error = run.error or UNKNOWN_ERROR
    code = "rate_limit_exceeded" if error.type in RATE_LIMITS else "server_error"
    return {"code": code, "message": error.detail, "type": error.type}


def _questions(response: RunResponse) -> list[JsonDict]:
    return question_items(response.run.waiting_for) if response.part.is_last else []


def _tool_choice(run: Run) -> JsonValue:
    chosen, allowed = run.input.overrides.tool_choice or "auto", run.input.overrides.allowed_tools
    if allowed is not None:
        tools: list[JsonValue] = [{"type": "function", "name": name} for name in allowed]
        return {"type": "allowed_tools", "mode": chosen, "tools": tools}
    return chosen if chosen in {"auto", "none", "required"} else {"type": "function", "name": chosen}


def _format_json(run: Run) -> JsonDict:
    wanted = run.input.overrides.response_format
    if wanted is None:
        return {"type": "text"}
    return {
        "type": "json_schema",
        "name": wanted.name,
        "description": wanted.description or None,
        "schema": dict(wanted.schema),
        "strict": wanted.strict,
    }


def _parameters(response: RunResponse) -> dict[str, JsonValue]:
    """Return temperature and `top_p` as sent to the model; 1 stands for the provider's default."""
    parameters = None if response.agent is None else response.agent.parameters
    ignored = response.echo.get(NOT_APPLIED)
    is_ignored = isinstance(ignored, list) and "temperature" in ignored
    temperature = None if is_ignored else response.run.input.overrides.temperature
    if temperature is None and parameters is not None:
        temperature = parameters.temperature
    top_p = None if parameters is None else parameters.top_p
    return {"temperature": 1.0 if temperature is None else temperature, "top_p": 1.0 if top_p is None else top_p}


def _usage_json(response: RunResponse) -> JsonDict | None:
    used = part_usage(response.run, response.part)
    return None if used is None else usage_json(used)


def usage_json(usage: Usage) -> JsonDict:
    """Return what model calls used; what is not known counts as 0."""
    read, written = usage.input_tokens or 0, usage.output_tokens or 0
    cached, cache_write = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": cache_write},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": read + written,
    }


async def read_response(call: Call, ref: ResponseRef) -> RunResponse:
    """Return the response as it is stored now.

    Raises NotFound if it is missing, another user's, or deleted.
    """
    try:
        run = await call.services.database.runs.get_run(call.owner_id, ref.run_id)
    except NotFound:
        raise response_not_found(str(ref)) from None
    return await response_of(call, run, ref.part)


async def response_of(call: Call, run: Run, part: int) -> RunResponse:
    """Return one part of the run as a response. Raises NotFound if the run has no such part, or it is deleted."""
    return part_of(run, await call.services.database.messages.of_run(run), _agent_of(call, run), part)


def part_of(run: Run, messages: Sequence[Message], agent: AgentDefinition | None, part: int) -> RunResponse:
    """Return one part of the run, with all its messages, as `response_of` does."""
    found = responses_of(run, messages, agent)
    if part >= len(found) or _is_deleted(found[part], messages):
        raise response_not_found(str(ResponseRef(run.id, part)))
    return found[part]


async def response_in_progress(call: Call, followed: FollowedPart, part: int) -> RunResponse:
    """Return one part of a run that a request has begun or found. A fresh run's messages are not read.

    Raises NotFound if the part is missing or deleted.
    """
    run = followed.run
    return _first_part(call, run) if followed.is_fresh else await response_of(call, run, part)


async def final_response(call: Call, followed: FollowedPart, ended: RunEnded | RunWaiting, part: int) -> RunResponse:
    """Return one part of a run, which was followed up to its end or wait.

    Messages are not read if the answer is the run's only message besides the user's. Raises NotFound if the run was
    erased.
    """
    answer = followed.answer_alone(ended)
    if answer is None:
        is_over = isinstance(ended, RunEnded)
        run = ended.run if is_over else await call.services.database.followed_runs.reload(ended.run)
        return await response_of(call, run, part)
    return _first_part(call, ended.run, (answer,))


async def find_resumed_by(
    call: Call, run: Run, given: Sequence[Resolution], part: int | None = None
) -> RunResponse | None:
    """Return the newest response whose part was given all these resolutions, None without one.

    With `part` only that part is considered. The first part and deleted ones are skipped.
    """
    messages = await call.services.database.messages.of_run(run)
    for response in reversed(responses_of(run, messages, _agent_of(call, run))[1:]):
        is_wanted = part is None or response.part.number == part
        if is_wanted and not _is_deleted(response, messages) and _has_begun_with(response, given):
            return response
    return None


def _has_begun_with(response: RunResponse, given: Sequence[Resolution]) -> bool:
    """Return whether the response's part was given all of `given`. Until results are stored, the wait has them."""
    results = {message.tool_call_id: message for message in (*response.part.input, *response.part.made)}
    wait = response.run.wait if response.part.is_last and response.run.waiting_for is None else None
    for one in given:
        result = results.get(one.call_id) or results.get(call_of_question(one.call_id))
        is_stored = result is not None and matches_result(one, result)
        if not is_stored and (result is not None or wait is None or wait.resolution_for(one.call_id) != one):
            return False
    return True


async def get_continued(call: Call, ref: ResponseRef) -> tuple[RunResponse, ContinuedRun]:
    """Return the response that a request continues, and its run.

    The response has no messages if its run has never waited, because none are needed to continue it.

    Raises NotFound if the response is missing, another user's, or deleted.
    """
    try:
        found = await call.services.database.runs.get_continued(call.owner_id, ref.run_id)
    except NotFound:
        raise response_not_found(str(ref)) from None
    if found.run.wait_count or ref.part:
        return await response_of(call, found.run, ref.part), found
    response = _first_part(call, found.run)
    if found.is_redacted or response.echo.get(DELETED) is True:
        raise response_not_found(str(ref))
    return response, found


def _first_part(call: Call, run: Run, made: tuple[Message, ...] = ()) -> RunResponse:
    """Return the first part of a run that has not waited yet, with the messages that it has made."""
    return RunResponse(run, RunPart(made=made), call_kinds(run, made), _agent_of(call, run))


async def all_messages(
    call: Call, session_id: SessionId, after: int | None = None, last: int | None = None
) -> list[Message]:
    """Return the session's messages with positions larger than `after`, up to `last`; None sets no bound."""
    messages: list[Message] = []
    while True:
        query = MessageQuery(after=after, limit=200)
        page = await call.services.database.messages.list_messages(call.owner_id, session_id, query)
        messages += page.items
        if page.next_cursor is None or (last is not None and messages[-1].position >= last):
            return [message for message in messages if last is None or message.position <= last]
        after = page.items[-1].position


def _is_deleted(response: RunResponse, messages: Sequence[Message]) -> bool:
    """Return whether the response was deleted, or each of its messages redacted by itself."""
    said = messages_of(response.part, messages)
    return response.echo.get(DELETED) is True or (bool(said) and all(one.content == REDACTED_TEXT for one in said))


def _agent_of(call: Call, run: Run) -> AgentDefinition | None:
    return next((agent for agent in call.services.agents.all() if agent.name == run.agent), None)
