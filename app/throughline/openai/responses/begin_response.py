"""The turn behind a request for a response, and what it continues.

The turn is a new one, or a waiting one that is given what it waits for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from throughline.agents.definition import AgentDefinition
from throughline.chat_protocols.ask_agent import AgentRequest, ask_agent, resume_turn, split_messages
from throughline.chat_protocols.follow_part import FollowedPart, new_echo
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import JsonObject, RunId, SessionId
from throughline.domain.errors import InvalidInput, NotFound, RunNotWaiting, SessionBusy, SessionWaiting
from throughline.domain.message import REDACTED_TEXT, Message, NewMessage, Role, Source, clean_text, text_of
from throughline.domain.prompt import Overrides
from throughline.domain.run import CopiedMessages, OnBusy, Run, RunInput, Submitted
from throughline.domain.tool import ApprovalDecision, Resolution
from throughline.http.call import Call
from throughline.http.headers import NO_KEY, Idempotency
from throughline.openai.input_items import ApprovalItem, read_items
from throughline.openai.models import find_agent
from throughline.openai.output_items import read_conversation_id, read_response_id
from throughline.openai.read_items import with_referenced
from throughline.openai.read_request import not_applied_echo
from throughline.openai.response_object import RunResponse, find_resumed_by, get_continued
from throughline.openai.responses.request import CreateResponse

MOST_COPIED = 10_000


class PreviousResponseNotFound(NotFound):
    """The response that the request continues is missing, another user's, deleted, or was not stored."""

    code = "previous_response_not_found"


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    """Where a request for a response came from: its interface, and its idempotency key.

    `continuable` are the ids of responses that were not stored and that the request's connection may continue all the
    same.
    """

    source: Source
    idempotency: Idempotency = NO_KEY
    continuable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """A request for a response as it was read.

    It has its body, the agent that it names, the instructions and messages of its input, and its origin.
    """

    body: CreateResponse
    agent: AgentDefinition
    instructions: str
    messages: tuple[NewMessage, ...]
    origin: RequestOrigin

    @property
    def overrides(self) -> Overrides:
        """What the request changes of the agent."""
        return self.body.read_overrides(self.instructions)

    @property
    def echo(self) -> JsonObject:
        """What is kept of the request, to be shown with the response."""
        return {**self.body.echo(), **not_applied_echo(self.body.not_applied(), self.overrides, self.agent)}

    @property
    def approvals(self) -> tuple[ApprovalItem, ...]:
        items = () if isinstance(self.body.input, str) else self.body.input
        return tuple(item for item in items if isinstance(item, ApprovalItem))

    def resolutions(self, author: str) -> tuple[Resolution, ...]:
        """Return what the request gives to calls, in the name of `author`."""
        decided = [_decided(item, author) for item in self.approvals]
        outputs = [
            Resolution(message.tool_call_id or "", text_of(message.content), author=author)
            for message in self.messages
            if message.role is Role.TOOL
        ]
        return (*decided, *outputs)

    @property
    def has_resolutions(self) -> bool:
        """Whether the request has outputs of tools, or decisions on approvals."""
        return any(message.role is Role.TOOL for message in self.messages) or bool(self.approvals)

    @property
    def has_only_resolutions(self) -> bool:
        """Whether the request has outputs or decisions, and no other messages."""
        return self.has_resolutions and all(message.role is Role.TOOL for message in self.messages)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What a request continues: a session, a run, or a copy of earlier messages; nothing for a new session.

    `previous` is the response with which the session ends, None if the request names none. `waiting` is the run that
    waits. `repeated` is the response that the same outputs or decisions have begun before.
    """

    session_id: SessionId | None = None
    previous: RunResponse | None = None
    waiting: Run | None = None
    repeated: RunResponse | None = None
    copied: CopiedMessages | None = None


async def find_target(call: Call, asked: ResponseRequest) -> ResumePoint:
    """Return what the request continues. A repeated idempotency key leads to the session of the first request.

    Raises InvalidInput, NotFound (conversation), PreviousResponseNotFound, and SessionBusy for a response that is not
    over.
    """
    target = await _find_named(call, asked)
    key = asked.origin.idempotency.key
    is_plain = target.session_id is not None and target.waiting is None and target.repeated is None
    if key is None or is_plain:  # a turn of the same session is found when this one is submitted
        return target
    # In this order a turn that the same request has begun in between is found.
    keyed = await call.services.database.runs.find_keyed(call.owner_id, key)
    return target if keyed is None else ResumePoint(keyed.session_id)


async def _find_named(call: Call, asked: ResponseRequest) -> ResumePoint:
    body = asked.body
    if body.conversation_id is not None and body.previous_response_id is not None:
        raise InvalidInput(
            "A request names `conversation` or `previous_response_id`, not both.", field="previous_response_id"
        )
    if body.conversation_id is not None:
        session_id = read_conversation_id(body.conversation_id)
        # Whether the session is there, and waits, is found when the message is submitted.
        return await _conversation(call, asked, session_id) if asked.has_resolutions else ResumePoint(session_id)
    if body.previous_response_id is not None:
        return await _previous(call, asked, body.previous_response_id)
    return ResumePoint()


async def _conversation(call: Call, asked: ResponseRequest, session_id: SessionId) -> ResumePoint:
    """Return the conversation, and the run that the request resumes, or has resumed before. Raises NotFound."""
    runs, given = call.services.database.runs, asked.resolutions(call.principal.user_name)
    waiting = await runs.waiting_of(call.owner_id, session_id)
    wait = None if waiting is None else waiting.wait
    if wait is not None and (wait.has_any_call(given) or not asked.has_only_resolutions):
        return ResumePoint(session_id, waiting=waiting)
    newest = waiting or next(iter((await runs.list_runs(call.owner_id, session_id, RunQuery(limit=1))).items), None)
    repeated = None
    if asked.has_only_resolutions and newest is not None:
        repeated = await find_resumed_by(call, newest, given)
    return ResumePoint(session_id, waiting=None if repeated is not None else waiting, repeated=repeated)


async def _previous(call: Call, asked: ResponseRequest, name: str) -> ResumePoint:
    """Return what follows a response: its session, its run, or a copy of the messages up to it.

    What is not stored goes on in a copy of a stored session, and the other way round.
    """
    try:
        ref = read_response_id(name)
        previous, found = await get_continued(call, ref)
    except NotFound as error:
        raise PreviousResponseNotFound(error.detail) from None
    was_stored = previous.echo.get("store") is not False
    if not was_stored and name not in asked.origin.continuable:
        raise PreviousResponseNotFound(f"The response {name!r} was not stored, so nothing can follow it.")
    is_last, run = previous.part.is_last, previous.run
    if is_last and run.waiting_for is not None:
        return ResumePoint(waiting=run)
    if not is_last and asked.has_only_resolutions:
        repeated = await find_resumed_by(call, run, asked.resolutions(call.principal.user_name), ref.part + 1)
        return ResumePoint(repeated=repeated)
    if is_last and not run.status.is_final:
        raise SessionBusy(f"The response {name!r} is not over yet. Wait for it, or cancel it.", run_id=str(run.id))
    if is_last and found.is_newest and was_stored is asked.body.is_stored:
        return ResumePoint(run.session_id, previous)
    return ResumePoint(copied=await copy_through(call, previous))


async def copy_through(call: Call, previous: RunResponse) -> CopiedMessages:
    """Return the messages up to the response, to be copied. Raises InvalidInput if they are more than MOST_COPIED."""
    through = await last_position(call, previous)
    if through > MOST_COPIED:
        raise InvalidInput(
            f"A conversation can be continued from an earlier response within its first {MOST_COPIED} messages. "
            "Continue from its newest response.",
            field="previous_response_id",
        )
    return CopiedMessages(previous.run.session_id, through)


async def last_position(call: Call, response: RunResponse) -> int:
    """Return the position of the response's last message that was read, or of its run's newest one; 0 without any."""
    made = (*response.part.input, *response.part.made)
    messages = made or await call.services.database.messages.of_run(response.run)
    return messages[-1].position if messages else 0


def _decided(item: ApprovalItem, author: str) -> Resolution:
    decision = ApprovalDecision.APPROVE if item.approve else ApprovalDecision.REJECT
    reason = "" if item.approve else item.reason or ""
    return Resolution(item.approval_request_id, reason, decision=decision, author=author)


# History that a request brings although the conversation that it continues has it already. Some clients name a
# conversation or an earlier response and send the whole chat all the same. Stored again with each turn, it would make
# the conversation grow with the square of its turns.

MOST_COMPARED = 200
"""Newest messages of a session that are compared."""

COMPARED = (Role.USER, Role.ASSISTANT)


async def without_repeated(call: Call, target: ResumePoint, brought: tuple[NewMessage, ...]) -> tuple[NewMessage, ...]:
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
class ResponseTurn:
    """The turn of a response: the run's part that it is, and where the part's events are found.

    `repeated` is the response if the same outputs or decisions have begun it before.
    """

    part: int
    followed: FollowedPart
    repeated: RunResponse | None = None


async def begin_response(call: Call, body: CreateResponse, origin: RequestOrigin) -> ResponseTurn:
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
        return ResponseTurn(part, FollowedPart(target.repeated.run, skipped_waits=part), target.repeated)
    if target.waiting is not None:
        return await _resume(call, asked, target.waiting)
    if asked.has_only_resolutions:
        raise RunNotWaiting(
            "No turn waits for these outputs: it was given others before, or has ended. Read its responses, or send a "
            "message of the user."
        )
    submitted = await _submit(call, asked, target)
    return ResponseTurn(0, FollowedPart(submitted.run, is_fresh=submitted.is_fresh))


async def _resume(call: Call, asked: ResponseRequest, run: Run) -> ResponseTurn:
    """Give the waiting run what the request brings."""
    changed = replace(_run_input(asked), echo=new_echo(run, asked.echo, call.unix_time))
    given = _checked(call, run, asked)
    return ResponseTurn(run.wait_count, await resume_turn(call, run, given, changed))


async def _submit(call: Call, asked: ResponseRequest, target: ResumePoint) -> Submitted:
    """Submit a new turn. Raises InvalidInput if a turn of the conversation waits for something else."""
    body = asked.body
    brought = split_messages(asked.messages, instructions=asked.instructions, param="input")
    new_history = await without_repeated(call, target, brought.history)
    agent_request = AgentRequest(
        agent=body.model,
        brought=replace(brought, history=new_history),
        run_input=replace(_run_input(asked), echo=new_echo(None, asked.echo, call.unix_time)),
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
