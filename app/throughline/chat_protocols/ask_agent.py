"""Submission of a turn for a request that brings messages: to a new session, an existing one, or a copy of one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from throughline.chat_protocols.follow_part import FollowedPart, new_echo
from throughline.db.sessions.append import title_of
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import JsonObject, SessionId
from throughline.domain.errors import InvalidInput
from throughline.domain.message import NewMessage, Role, Source, is_blank
from throughline.domain.prompt import Overrides, ToolSpec
from throughline.domain.run import CopiedMessages, OnBusy, Opening, Run, RunInput, Submission, Submitted
from throughline.domain.session import NewSession, Session
from throughline.domain.tool import MAX_OUTPUT, Resolution
from throughline.http.call import Call
from throughline.http.headers import Idempotency

# The messages of a request, split at its newest user message: history, that message, and the steps after it. The
# requests of every protocol are read into it.


@dataclass(frozen=True, slots=True)
class RequestMessages:
    """The messages of a request: those before the newest user message, that message, and the steps after it.

    `instructions` are the texts of its system and developer messages. `user_message` is None without a user message.
    `steps` are model messages with tool calls and the results of these calls, in the order in which a turn takes them.
    """

    instructions: str = ""
    history: tuple[NewMessage, ...] = ()
    user_message: NewMessage | None = None
    steps: tuple[NewMessage, ...] = ()

    @property
    def steps_with_calls(self) -> int:
        """The number of steps that call tools."""
        return sum(1 for message in self.steps if message.tool_calls)


@dataclass(slots=True)
class _Step:
    """A step that is being read: its message and the results of its calls by id."""

    message: NewMessage
    called: frozenset[str]
    results: dict[str, NewMessage] = field(default_factory=dict)

    def messages(self) -> tuple[NewMessage, ...]:
        in_order = (self.results.get(call.id) for call in self.message.tool_calls)
        return (self.message, *(result for result in in_order if result is not None))


def split_messages(messages: Sequence[NewMessage], *, instructions: str, param: str) -> RequestMessages:
    """Return the conversation that `messages` are. `param` is the request's field, for errors.

    Raises InvalidInput if the messages after the newest user message are no steps of a turn: an answer that is to be
    continued, two calls of a step with one id, a result without its call, or two results of one call.
    """
    asked_at = max((index for index, message in enumerate(messages) if message.role is Role.USER), default=None)
    if asked_at is None:
        return RequestMessages(instructions, tuple(messages))
    steps: list[_Step] = []
    for index, message in enumerate(messages[asked_at + 1 :], start=asked_at + 1):
        _add(steps, message, f"{param}.{index}")
    taken = tuple(message for step in steps for message in step.messages())
    return RequestMessages(instructions, tuple(messages[:asked_at]), messages[asked_at], taken)


def _add(steps: list[_Step], message: NewMessage, where: str) -> None:
    if message.role is Role.ASSISTANT:
        if not message.tool_calls:
            raise InvalidInput(
                f"{where} is an answer after the newest user message. An answer cannot be continued: remove it, or "
                "add a user message after it.",
                field=where,
            )
        called = frozenset(call.id for call in message.tool_calls)
        if len(called) < len(message.tool_calls):
            raise InvalidInput(f"{where} has two calls with the same id. Give each its own.", field=where)
        steps.append(_Step(message, called))
        return
    if not steps or message.tool_call_id not in steps[-1].called or message.tool_call_id in steps[-1].results:
        raise InvalidInput(
            f"{where} is the result of a call {message.tool_call_id!r}, which the message before it did not make, or "
            "which has a result already.",
            field=where,
        )
    steps[-1].results[message.tool_call_id] = message


def check_length(text: str, field: str, most: int = MAX_OUTPUT, subject: str = "A result") -> None:
    """Raise InvalidInput for the result of a tool, an answer, or another `subject` that is too long.

    `subject` begins the error's sentence.
    """
    if len(text) > most:
        raise InvalidInput(f"{subject} has at most {most} characters, not {len(text)}.", field=field)


async def resume_turn(call: Call, run: Run, given: Sequence[Resolution], changed: RunInput) -> FollowedPart:
    """Give the waiting run what it waits for, and return its next part.

    The run's overrides, tools and echo become those of `changed`. Without tools in the request the run keeps those that
    it has, because the model has called them. Raises InvalidInput, RunNotWaiting.
    """
    kept = run.input
    tools = changed.client_tools or kept.client_tools
    new = replace(kept, overrides=changed.overrides, client_tools=tools, echo=changed.echo)
    await call.services.check_input_for(run.agent, new)
    resumed = await call.services.database.runs.resume(call.owner_id, run.id, given, new)
    if resumed.is_repeated:
        return FollowedPart(resumed.run, skipped_waits=run.wait_count)
    return FollowedPart(resumed.run, after=resumed.last_seq)


def turn_input(
    call: Call, brought: RequestMessages, *, tools: tuple[ToolSpec, ...] = (), echo: JsonObject | None = None
) -> RunInput:
    """Return the input of a turn without its message, for a client that cannot know what the agent allows.

    `echo` is what is kept of the request without being used.
    """
    metadata = {} if brought.user_message is None else brought.user_message.metadata
    overrides = Overrides(instructions=brought.instructions or None).leniently()
    return RunInput("", metadata, overrides, tools, echo=new_echo(None, echo or {}, call.unix_time))


UNSTORED_SECONDS = 900.0
"""Seconds for which the session of a request that keeps nothing can be read by the turn that it began."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A request for an answer: the agent's name, the brought conversation, and the turn's input without its message.

    `param` is the request's field with the messages, for errors. `session_id` is the session to continue, None for a
    new one: one that is stored unless `is_stored` is False, with `external_id` as the caller's own id, which it takes
    over from the session `branched_from`. It begins with copies of the messages `copied`. With `refuses_waiting`
    nothing is asked while a turn of the session waits.
    """

    agent: str
    brought: RequestMessages
    run_input: RunInput
    param: str
    session_id: SessionId | None = None
    is_stored: bool = True
    external_id: str | None = None
    on_busy: OnBusy = OnBusy.ENQUEUE
    branched_from: Session | None = None
    copied: CopiedMessages | None = None
    refuses_waiting: bool = False


async def ask_agent(call: Call, asked: AgentRequest, source: Source, idempotency: Idempotency) -> Submitted:
    """Store the request's turn, and start it if a worker of this process is free.

    The session's agent becomes the requested one. Raises InvalidInput if nothing is asked, or if the agent does not
    allow what the request overrides or brings, and the errors of `submit`.
    """
    message = asked.brought.user_message
    if message is None or (isinstance(message.content, str) and is_blank(message.content)):
        raise InvalidInput(f"{asked.param} has no message of a user that says anything. Add one.", field=asked.param)
    run_input = replace(asked.run_input, content=message.content, steps_brought=asked.brought.steps_with_calls)
    await call.services.check_input_for(asked.agent, run_input)
    history = await _counted(call, asked.agent, asked.brought.history)
    steps = await _counted(call, asked.agent, asked.brought.steps)
    new = None if asked.session_id is not None else _new_session(call, asked, source, idempotency)
    replaces = None if asked.branched_from is None else asked.branched_from.id
    has_opening = new is not None or history or steps
    opening = Opening(new, history, steps, replaces, asked.copied) if has_opening else None
    return await call.services.submit(
        Submission(
            owner_id=call.owner_id,
            session_id=_session_id(asked.session_id, new),
            input=run_input,
            source=source,
            author=call.principal.user_name,
            actor=call.principal.actor,
            idempotency_key=idempotency.key,
            fingerprint=idempotency.fingerprint,
            on_busy=asked.on_busy,
            opening=opening,
            agent=asked.agent,
            refuses_waiting=asked.refuses_waiting,
        )
    )


async def _counted(call: Call, agent: str, messages: Sequence[NewMessage]) -> tuple[NewMessage, ...]:
    """Return the messages with their tokens counted; those that have a count keep it."""
    uncounted = [message for message in messages if not message.counter]
    if not uncounted:
        return tuple(messages)
    counted = iter(await call.services.count_messages(agent, uncounted))
    return tuple(message if message.counter else next(counted) for message in messages)


def _new_session(call: Call, asked: AgentRequest, source: Source, idempotency: Idempotency) -> NewSession:
    earlier = asked.branched_from
    origin = asked.copied.session_id if asked.copied is not None else None if earlier is None else earlier.id
    return NewSession(
        owner_id=call.owner_id,
        agent=asked.agent,
        title="" if earlier is None else _title_of(earlier, asked),
        source=source,
        metadata={} if origin is None else {"branched_from": str(origin)},
        idempotency_key=idempotency.key,
        fingerprint=idempotency.fingerprint,
        external_id=asked.external_id,
        id=SessionId(new_id()),
        expires_in_seconds=None if asked.is_stored else UNSTORED_SECONDS,
    )


def _title_of(earlier: Session, asked: AgentRequest) -> str:
    """Return the title of a branch: with copies of the earlier session's beginning its title, else of its own messages.

    The earlier title may be of a message that the branch lacks.
    """
    if asked.copied is not None:
        return earlier.title
    return next((title_of(message.content) for message in asked.brought.history if message.role is Role.USER), "")


def _session_id(session_id: SessionId | None, new: NewSession | None) -> SessionId:
    found = session_id if new is None else new.id
    if found is None:
        raise AssertionError("a turn needs a session, and none was found or made")
    return found
