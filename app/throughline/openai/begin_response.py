"""The turn behind a request for a response: a new one, or a waiting one that is given what it waits for."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import RunId
from throughline.domain.errors import InvalidInput, RunNotWaiting, SessionBusy, SessionWaiting
from throughline.domain.message import REDACTED_TEXT, Message, NewMessage, Role, clean_text, text_of
from throughline.domain.run import OnBusy, Run, RunInput, Submitted
from throughline.domain.tool import Resolution
from throughline.http.admitted_request import Call
from throughline.openai.ask_agent import AgentRequest, ask_agent, resume_turn, split_messages
from throughline.openai.find_target import RequestOrigin, ResponseRequest, Target, copy_through, find_target
from throughline.openai.follow_part import FollowedPart
from throughline.openai.input_items import read_items
from throughline.openai.models import find_agent
from throughline.openai.referenced_items import with_referenced
from throughline.openai.response_object import RunResponse, new_echo
from throughline.openai.response_request import CreateResponse

# History that a request brings although the conversation that it continues has it already.
#
# Some clients name a conversation or an earlier response and send the whole chat all the same. Stored again with each
# turn, it would make the conversation grow with the square of its turns.

MOST_COMPARED = 200
"""Newest messages of a session that are compared."""

COMPARED = (Role.USER, Role.ASSISTANT)


async def without_repeated(call: Call, target: Target, brought: tuple[NewMessage, ...]) -> tuple[NewMessage, ...]:
    """Return the brought history: none of it if the target ends with it.

    Texts of users and answers are compared, from the end, and each has to be there. Raises NotFound for a missing
    session.
    """
    said = _texts(brought)
    session_id = target.session_id if target.copied is None else target.copied.session_id
    if not said or session_id is None:
        return brought
    before = None if target.copied is None else target.copied.through_position + 1
    query = MessageQuery(limit=MOST_COMPARED, before=before, order="desc")
    stored = (await call.services.database.messages.list_messages(call.owner_id, session_id, query)).items[::-1]
    known = _texts(stored)
    is_cut = len(stored) == MOST_COMPARED
    if len(said) > len(known) and not is_cut:
        return brought
    pairs = zip(reversed(said), reversed(known), strict=False)
    is_repeated = all(one[0] is other[0] and other[1] in {one[1], REDACTED_TEXT} for one, other in pairs)
    return () if is_repeated else brought


def _texts(messages: Iterable[Message | NewMessage]) -> list[tuple[Role, str]]:
    """Return the texts of users and answers, without those of steps that only call tools."""
    said = ((message.role, clean_text(text_of(message.content))) for message in messages if message.role in COMPARED)
    return [(role, text) for role, text in said if text]


@dataclass(frozen=True, slots=True)
class BegunResponse:
    """A response that was begun: the run's part that it is, and where the part's events are found.

    `repeated` is the response if the same outputs or decisions have begun it before.
    """

    part: int
    followed: FollowedPart
    repeated: RunResponse | None = None


async def begin_response(call: Call, body: CreateResponse, origin: RequestOrigin) -> BegunResponse:
    """Store what the request asks, as a new turn or for a waiting one, and return the response that it begins.

    Outputs that a turn was given before lead to the response that they began then.

    Raises ModelNotFound, NotFound (conversation), PreviousResponseNotFound, InvalidInput, RunNotWaiting, SessionBusy
    and the errors of `submit`.
    """
    agent = find_agent(call.services.agents.all(), body.model)
    instructions, messages = read_items(await with_referenced(call, body.input), origin.source)
    asked = ResponseRequest(body, agent, instructions, messages, origin)
    target = await find_target(call, asked)
    if target.repeated is not None:
        part = target.repeated.part.number
        return BegunResponse(part, FollowedPart(target.repeated.run, skipped_waits=part), target.repeated)
    if target.waiting is not None:
        return await _resume(call, asked, target.waiting)
    if asked.has_only_resolutions:
        raise RunNotWaiting(
            "No turn waits for these outputs: it was given others before, or has ended. Read its responses, or send a "
            "message of the user."
        )
    submitted = await _submit(call, asked, target)
    is_fresh = submitted.claimed is not None and submitted.claimed.next_event == 1
    return BegunResponse(0, FollowedPart(submitted.run, is_fresh=is_fresh))


async def _resume(call: Call, asked: ResponseRequest, run: Run) -> BegunResponse:
    """Give the waiting run what the request brings."""
    changed = replace(_run_input(asked), echo=new_echo(run, asked.echo, _now(call)))
    given = _checked(call, run, asked)
    return BegunResponse(run.wait_count, await resume_turn(call, run, given, changed))


async def _submit(call: Call, asked: ResponseRequest, target: Target) -> Submitted:
    """Submit a new turn. Raises InvalidInput if a turn of the conversation waits for something else."""
    body = asked.body
    brought = split_messages(asked.messages, instructions=asked.instructions, param="input")
    new_history = await without_repeated(call, target, brought.history)
    agent_request = AgentRequest(
        agent=body.model,
        brought=replace(brought, history=new_history),
        run_input=replace(_run_input(asked), echo=new_echo(None, asked.echo, _now(call))),
        param="input",
        session_id=target.session_id,
        copied=target.copied,
        is_stored=body.is_stored,
        refuses_waiting=body.conversation_id is not None,
    )
    try:
        return await _ask(call, agent_request, target.previous, asked.origin)
    except SessionWaiting as error:
        waiting = await call.services.database.runs.get_run(call.owner_id, RunId(UUID(error.run_id)))
        _checked(call, waiting, asked)  # says what is missing
        raise


async def _ask(call: Call, asked: AgentRequest, previous: RunResponse | None, origin: RequestOrigin) -> Submitted:
    """Submit the turn. One that goes on from `previous` gets a copy if another turn has begun behind it meanwhile."""
    if previous is None:
        return await ask_agent(call, asked, origin.source, origin.idempotency)
    try:
        return await ask_agent(call, replace(asked, on_busy=OnBusy.REJECT), origin.source, origin.idempotency)
    except SessionBusy:
        asked = replace(asked, session_id=None, copied=await copy_through(call, previous))
    return await ask_agent(call, asked, origin.source, origin.idempotency)


def _run_input(asked: ResponseRequest) -> RunInput:
    """Return the turn's input without its message."""
    body = asked.body
    return RunInput("", body.metadata or {}, asked.overrides, body.read_tools())


def _now(call: Call) -> int:
    """Return the current Unix time, in seconds."""
    return int(call.services.clock.now().timestamp())


def _checked(call: Call, run: Run, asked: ResponseRequest) -> tuple[Resolution, ...]:
    """Return what the request gives to the calls of the waiting run.

    Raises InvalidInput if it lacks what a call waits for, or says anything else, or names another agent.
    """
    if asked.body.model != run.agent:
        raise InvalidInput(f"The turn that waits is one of the model {run.agent!r}. Name it.", field="model")
    given = asked.resolutions(call.principal.user_name)
    known = {resolution.call_id for resolution in given}
    missing = [awaited for awaited in (run.wait.open_calls if run.wait is not None else ()) if awaited.id not in known]
    if missing:
        raise InvalidInput(f"No tool output found for function call {missing[0].id}.", field="input")
    if any(message.role is not Role.TOOL for message in asked.messages):
        raise InvalidInput(
            "The conversation waits for outputs of function calls. Send them alone, and messages with a later request.",
            field="input",
        )
    return given
