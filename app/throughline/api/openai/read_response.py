"""Reading a response: its run, the run's messages, and the part that it is."""

from collections.abc import Sequence

from throughline.agents.definition import AgentDefinition
from throughline.api.http.admitted_request import Call
from throughline.api.openai.follow_part import FollowedPart
from throughline.api.openai.ids import ResponseRef, response_not_found
from throughline.api.openai.response_object import DELETED, RunResponse, call_kinds, responses_of
from throughline.api.openai.run_parts import RunPart, messages_of
from throughline.db.runs.repository import ContinuedRun
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.errors import NotFound
from throughline.domain.events import RunEnded, RunWaiting
from throughline.domain.ids import SessionId
from throughline.domain.message import REDACTED_TEXT, Message
from throughline.domain.run import Run
from throughline.domain.waiting import Resolution, matches_result


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


async def begun_response(call: Call, followed: FollowedPart, part: int) -> RunResponse:
    """Return one part of a run that a request has begun or found. A fresh run's messages are not read.

    Raises NotFound if the part is missing or deleted.
    """
    run = followed.run
    return _first_part(call, run) if followed.is_fresh else await response_of(call, run, part)


async def ended_response(call: Call, followed: FollowedPart, ended: RunEnded | RunWaiting, part: int) -> RunResponse:
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
    return all(
        matches_result(one, results[one.call_id])
        if one.call_id in results
        else wait is not None and wait.resolution_for(one.call_id) == one
        for one in given
    )


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
