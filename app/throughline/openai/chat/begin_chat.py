"""The turn behind a request for a chat completion: in the session that it names, or in a new one."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from fastapi import Request

from throughline.db.sessions.find_session import ContinuedSession, UserText
from throughline.domain.basic_types import JsonObject, SessionId
from throughline.domain.errors import ConversationBranched, InvalidInput, NotFound
from throughline.domain.message import NewMessage, Role, Source, clean_content, is_blank, text_of
from throughline.domain.prompt import Overrides
from throughline.domain.run import OnBusy, Run, RunInput
from throughline.domain.session import MAX_EXTERNAL_ID, Session
from throughline.domain.tool import Resolution, WaitKind
from throughline.http.call import Call, source_of
from throughline.http.headers import Idempotency, fingerprint_of, read_idempotency
from throughline.http.openai_messages import read_messages
from throughline.openai.ask_agent import AgentRequest, ask_agent, find_agent, resume_turn, split_messages
from throughline.openai.chat.request import SESSION_KEY, CreateCompletion
from throughline.openai.follow_part import FollowedPart, newest_part
from throughline.openai.read_request import not_applied_echo
from throughline.openai.response_object import new_echo

# How a request for a chat completion names its session, and calls of chat programs that belong to no session. Open
# WebUI and LibreChat also call the model for titles, tags and suggestions, with the headers of the chat.

SESSION_HEADER = "X-Session-Id"
WHOLE_CHAT_HEADERS = ("X-Chat-Id", "X-OpenWebUI-Chat-Id")
"""Headers of programs that send the whole chat with each request. Open WebUI sends the second one by itself."""

TASK_HEADER = "X-OpenWebUI-Task"
"""Header that names a task of Open WebUI, if its connection is set up so. It is empty for messages of a chat."""

NOT_STORED = ("local:",)
"""Beginnings of the ids of temporary chats of Open WebUI, of which nothing is kept."""

NO_CHAT = frozenset({"", "new"})
"""Ids that LibreChat sends for a chat that has none yet."""

TASKS = (
    ("### Task:", "<chat_history>"),
    ("Your task is to reflect the speaker's likely facial expression through a fitting emoji.", ""),
    ("You have been provided with a set of responses from various models to the latest user query:", ""),
    ("Provide a concise, 5-word-or-less title for the conversation", ""),
    ("Analyze this conversation and provide", "detected language"),
)
"""Beginnings of the task prompts that both programs come with, each with a text that follows further on.

The first three are Open WebUI's, the other two LibreChat's.
"""


@dataclass(frozen=True, slots=True)
class SessionName:
    """A session as a request names it.

    `id` is that of a session, or None. `external_id` is the caller's own id, or None. Both are set for a header that
    may be either. With `has_whole_chat` the client sends the whole chat, also if that is one message.
    """

    id: SessionId | None = None
    external_id: str | None = None
    has_whole_chat: bool = False


def session_named(request: Request, body: CreateCompletion, messages: Sequence[NewMessage]) -> SessionName | None:
    """Return how the request names its session; None if it names none, or if it is a task of a chat program.

    Raises InvalidInput for an id that is too long, or for a placeholder that the chat program has not filled in.
    """
    if body.session_name is not None:
        name = _checked(body.session_name, f"metadata.{SESSION_KEY}")
        found = _uuid(name)
        return SessionName(external_id=name) if found is None else SessionName(id=found)
    if _is_task(request, messages):
        return None
    header = next((name for name in (SESSION_HEADER, *WHOLE_CHAT_HEADERS) if _sent(request, name)), None)
    if header is None:
        return None
    name = _checked(_sent(request, header), header)
    if name.startswith(NOT_STORED):
        return None
    if header == SESSION_HEADER:
        return SessionName(id=_uuid(name), external_id=name)
    return SessionName(external_id=name, has_whole_chat=True)


def _sent(request: Request, header: str) -> str:
    value = request.headers.get(header, "").strip()
    return "" if value in NO_CHAT else value


def _checked(name: str, field: str) -> str:
    if is_blank(name) or len(name) > MAX_EXTERNAL_ID:
        raise InvalidInput(f"{field} has 1 to {MAX_EXTERNAL_ID} characters, not {len(name)}.", field=field)
    return _filled_in(name, field)


def _filled_in(value: str, field: str) -> str:
    if "{{" in value:
        raise InvalidInput(
            f"{field} is {value!r}, a placeholder that the chat program has not filled in. Check its name.", field=field
        )
    return value


def _uuid(text: str) -> SessionId | None:
    try:
        found = UUID(text)
    except ValueError:
        return None
    return SessionId(found) if str(found) == text.lower() else None


def _is_task(request: Request, messages: Sequence[NewMessage]) -> bool:
    """Return whether the request asks for a title or something else about a chat, and is no message of it."""
    if _filled_in(request.headers.get(TASK_HEADER, "").strip(), TASK_HEADER):
        return True
    if len(messages) != 1 or messages[0].role is not Role.USER:
        return False
    text = text_of(messages[0].content).lstrip()
    return any(text.startswith(beginning) and further in text for beginning, further in TASKS)


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a request asks of which agent, and where it came from.

    `name` is the session as the request names it, None if it names none. `texts` are those of the user, oldest first.
    `echo` is what is kept of the request without being used. `is_retry`: the client says that it tries again.
    `fingerprint` is a hash of the request if it names a session without an idempotency key, '' otherwise.
    """

    call: Call
    source: Source
    name: SessionName | None
    agent_request: AgentRequest
    texts: tuple[str, ...]
    echo: JsonObject
    idempotency: Idempotency
    is_retry: bool
    fingerprint: str = ""

    @property
    def now(self) -> int:
        """The current Unix time, in seconds."""
        return int(self.call.services.clock.now().timestamp())

    async def ask_once(self, agent_request: AgentRequest, seen: str) -> "ChatTurn":
        """Submit a new turn, or find the one that an equal request has begun at the same moment.

        `seen` says in which state both found the session. Raises the errors of `ask_agent`.
        """
        if not self.fingerprint:
            return await self.ask(agent_request)
        key = hashlib.sha256(f"{seen} {self.fingerprint}".encode()).hexdigest()
        return await replace(self, idempotency=Idempotency(f"chat-{key}", self.fingerprint)).ask(agent_request)

    async def ask(self, agent_request: AgentRequest) -> "ChatTurn":
        """Submit a new turn, or find the one that the idempotency key has begun. Raises the errors of `ask_agent`."""
        submitted = await ask_agent(self.call, agent_request, self.source, self.idempotency)
        if submitted.replayed:
            return replace(join_run(submitted.run), is_stored=agent_request.is_stored)
        is_fresh = submitted.claimed is not None and submitted.claimed.next_event == 1
        ends_with_client = not agent_request.is_stored and self.idempotency.key is None
        return ChatTurn(0, FollowedPart(submitted.run, is_fresh=is_fresh), agent_request.is_stored, ends_with_client)


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """The turn of a chat completion: the run's part that it is, and where the part's events are found.

    `is_stored`: the session stays. `ends_with_client`: the run is cancelled if the client disconnects, and if it waits.
    """

    part: int
    followed: FollowedPart
    is_stored: bool = True
    ends_with_client: bool = False


def join_run(run: Run) -> ChatTurn:
    """Return the newest part of a run that another request has begun."""
    part = newest_part(run)
    return ChatTurn(part, FollowedPart(run, skipped_waits=part))


# Comparison of the chat that a request brings with the session that it continues, by the texts of the user. Answers are
# not compared: chat programs change them, and a person may stop one before its end.

MOST_COMPARED = 20
"""Newest texts of a session that are compared."""


class Alignment(StrEnum):
    """How a request's newest message follows the session.

    - EMPTY: the session has no message of the user yet.
    - CONTINUES: the message is new.
    - REPEATS: it is the session's newest message once more.
    - MAY_REPEAT: it has the text of the session's newest message, and came without any message before it.
    - BRANCHES: the texts are not those of the session.
    """

    EMPTY = "empty"
    CONTINUES = "continues"
    REPEATS = "repeats"
    MAY_REPEAT = "may_repeat"
    BRANCHES = "branches"


@dataclass(frozen=True, slots=True)
class SessionTexts:
    """The user's newest texts of a session, oldest first. None stands for a redacted text, which fits any.

    `is_all` says that the session has no earlier one.
    """

    texts: tuple[str | None, ...]
    is_all: bool


def align(request_texts: Sequence[str], session_texts: SessionTexts, *, has_whole_chat: bool) -> Alignment:
    """Return how the last of `request_texts` follows the session.

    Both are texts of the user, oldest first. The request's earlier texts have to be the session's newest, as far back
    as both reach. A request with a single text continues any session, unless its client sends whole chats. If the
    newest text can be new or repeated, it is repeated only if the request and the session have equally many texts.
    """
    if not session_texts.texts:
        return Alignment.EMPTY
    repeats = _ends_alike(request_texts, session_texts.texts)
    if len(request_texts) == 1 and not has_whole_chat:
        return Alignment.MAY_REPEAT if repeats else Alignment.CONTINUES
    continues = len(request_texts) > 1 and _ends_alike(request_texts[:-1], session_texts.texts)
    if repeats and (not continues or (session_texts.is_all and len(request_texts) == len(session_texts.texts))):
        return Alignment.REPEATS
    return Alignment.CONTINUES if continues else Alignment.BRANCHES


def _ends_alike(request_texts: Sequence[str], session_texts: Sequence[str | None]) -> bool:
    pairs = zip(reversed(request_texts), reversed(session_texts), strict=False)
    return all(stored is None or one == stored for one, stored in pairs)


PARAM = "messages"


async def continue_chat(chat: ChatRequest, continued: ContinuedSession) -> ChatTurn:
    """Begin what the request asks in its session: the rest of a waiting turn, a new turn, or a branch.

    A repetition gets the turn that was begun before: one with the same idempotency key, one that is not finished, one
    that an equal request begins at the same moment, or any if the client says that it tries again.
    """
    alignment = _alignment(chat, continued.said)
    keyed = await _keyed_run(chat, continued, alignment)
    if keyed is not None:
        return await _replay(chat, keyed)
    given = _resolutions(chat, continued.waiting, alignment)
    if continued.waiting is not None and given:
        return await _resume(chat, continued.waiting, given)
    repeated = await _repeated_run(chat, continued, alignment)
    if repeated is not None:
        return join_run(repeated)
    newest = continued.said[-1].run_id if continued.said else None
    return await chat.ask_once(_new_turn(chat, continued, alignment), f"{continued.session.id} {newest}")


async def _keyed_run(chat: ChatRequest, continued: ContinuedSession, alignment: Alignment) -> Run | None:
    """Return the turn that the request's idempotency key has begun, None without one.

    It is not looked for if the request is a message and nothing else: then it is found when the turn is submitted.
    """
    is_plain = alignment is Alignment.CONTINUES and not chat.agent_request.brought.steps
    if chat.idempotency.key is None or (is_plain and continued.waiting is None):
        return None
    return await chat.call.services.database.runs.find_keyed(chat.call.owner_id, chat.idempotency.key)


def _alignment(chat: ChatRequest, said: Sequence[UserText]) -> Alignment:
    """Return how the request follows the session. One without a message of the user can only bring results."""
    if not chat.texts:
        return Alignment.CONTINUES
    texts = SessionTexts(tuple(one.text for one in said), len(said) < MOST_COMPARED)
    return align(chat.texts, texts, has_whole_chat=chat.name is not None and chat.name.has_whole_chat)


def _new_turn(chat: ChatRequest, continued: ContinuedSession, alignment: Alignment) -> AgentRequest:
    """Return the request for a new turn of the session, or of a branch of it."""
    brought = chat.agent_request.brought
    session = continued.session
    if alignment is Alignment.EMPTY:
        return replace(chat.agent_request, session_id=session.id)
    is_new = alignment is Alignment.CONTINUES or (alignment is Alignment.MAY_REPEAT and not brought.steps)
    if not is_new:
        return _branch(chat, session)
    on_busy = OnBusy.ENQUEUE if continued.waiting is None else OnBusy.INTERRUPT
    return replace(chat.agent_request, brought=replace(brought, history=()), session_id=session.id, on_busy=on_busy)


async def _replay(chat: ChatRequest, run: Run) -> ChatTurn:
    """Return the turn that the idempotency key has begun. Raises IdempotencyKeyReused if the request is another one."""
    brought = replace(chat.agent_request.brought, history=(), steps=())
    asked = replace(chat.agent_request, brought=brought, session_id=run.session_id)
    return await chat.ask(asked)


async def _repeated_run(chat: ChatRequest, continued: ContinuedSession, alignment: Alignment) -> Run | None:
    """Return the turn that the request repeats, None if it repeats none.

    A turn that is over is repeated only if the client says that it tries again: a user asks for another answer.
    """
    newest = continued.said[-1].run_id if continued.said else None
    if newest is None or alignment not in {Alignment.REPEATS, Alignment.MAY_REPEAT}:
        return None
    run = await chat.call.services.database.runs.get_run(chat.call.owner_id, newest)
    return run if chat.is_retry or not run.status.is_final else None


def _branch(chat: ChatRequest, session: Session) -> AgentRequest:
    """Return the request for a new session that takes the name over. Raises ConversationBranched if it cannot."""
    if chat.agent_request.external_id is None or (chat.name is not None and chat.name.id == session.id):
        raise ConversationBranched(
            f"The messages before the newest one are not those of session {session.id}, or its newest message is sent "
            "again. Messages of a session never change. Send the newest message alone, or name another session."
        )
    return replace(chat.agent_request, branched_from=session)


def _resolutions(chat: ChatRequest, waiting: Run | None, alignment: Alignment) -> tuple[Resolution, ...]:
    """Return what the request gives to the calls of the waiting run, empty if it gives nothing.

    These are results of the client's tools. A new message of the user answers the model's questions, unless results of
    tools are missing as well.
    """
    wait = None if waiting is None else waiting.wait
    if wait is None:
        return ()
    author = chat.call.principal.user_name
    brought = chat.agent_request.brought
    results = _newest_results(brought.history if brought.user_message is None else brought.steps)
    asked = [awaited for awaited in wait.calls if awaited.kind is WaitKind.TOOL_RESULT and awaited.id in results]
    if asked:
        return tuple(Resolution(awaited.id, results[awaited.id], author=author) for awaited in asked)
    lacks_results = any(awaited.kind is WaitKind.TOOL_RESULT for awaited in wait.open_calls)
    is_new = alignment is Alignment.CONTINUES or (alignment is Alignment.MAY_REPEAT and not chat.is_retry)
    if not is_new or lacks_results or brought.user_message is None or brought.steps:
        return ()
    return tuple(
        Resolution(awaited.id, text_of(brought.user_message.content), author=author) for awaited in wait.shown_questions
    )


def _newest_results(steps: Sequence[NewMessage]) -> dict[str, str]:
    """Return the results after the newest step by call id; empty without a step."""
    begun = max((index for index, message in enumerate(steps) if message.tool_calls), default=0)
    return {
        message.tool_call_id: text_of(message.content) for message in steps[begun:] if message.tool_call_id is not None
    }


async def _resume(chat: ChatRequest, waiting: Run, given: Sequence[Resolution]) -> ChatTurn:
    """Give the waiting run what the request brings. Raises InvalidInput for another agent, or a missing result."""
    wait = waiting.wait
    if chat.agent_request.agent != waiting.agent:
        raise InvalidInput(f"The turn that waits is one of the model {waiting.agent!r}. Name it.", field="model")
    known = {one.call_id for one in given}
    open_calls = () if wait is None else wait.open_calls
    missing = [one for one in open_calls if one.kind is WaitKind.TOOL_RESULT and one.id not in known]
    if missing:
        raise InvalidInput(f"No tool output found for function call {missing[0].id}.", field=PARAM)
    goes_on = all(one.id in known for one in open_calls)
    echo = new_echo(waiting, chat.echo, chat.now) if goes_on else waiting.input.echo
    changed = replace(chat.agent_request.run_input, echo=echo)
    followed = await resume_turn(chat.call, waiting, given, changed)
    return ChatTurn(waiting.wait_count if goes_on else waiting.wait_count - 1, followed)


RETRY_HEADER = "x-stainless-retry-count"
"""Header in which OpenAI's clients count how often they have sent the request before."""


async def begin_chat(request: Request, call: Call, body: CreateCompletion) -> ChatTurn:
    """Store what the request asks, or find the turn that it repeats, and return the completion that it begins.

    Raises ModelNotFound, NotFound (session), InvalidInput, ConversationBranched, SessionBusy, and the errors of
    `submit`.
    """
    chat = _read(request, call, body)
    continued = None if chat.name is None else await _find_session(call, chat.name)
    if continued is not None:
        return await continue_chat(chat, continued)
    return await chat.ask_once(chat.agent_request, f"new {chat.agent_request.external_id}")


def _read(request: Request, call: Call, body: CreateCompletion) -> ChatRequest:
    agent = find_agent(call.services.agents.all(), body.model)
    source = source_of(request, call)
    instructions, messages = read_messages(body.messages, source)
    name = session_named(request, body, messages)
    is_stored = name is not None or body.store is True
    overrides = body.read_overrides(instructions)
    not_applied = not_applied_echo(body.not_applied(is_stored=is_stored), overrides, agent)
    echo = {**body.echo(is_stored=is_stored), **not_applied}
    agent_request = AgentRequest(
        agent=agent.name,
        brought=split_messages(messages, instructions=instructions, param=PARAM),
        run_input=_run_input(call, body, overrides, echo),
        param=PARAM,
        is_stored=is_stored,
        external_id=None if name is None else name.external_id,
    )
    idempotency = read_idempotency(request, body)
    return ChatRequest(
        call=call,
        source=source,
        name=name,
        agent_request=agent_request,
        texts=_user_texts(messages),
        echo=echo,
        idempotency=idempotency,
        is_retry=request.headers.get(RETRY_HEADER, "0") not in {"", "0"},
        fingerprint="" if name is None or idempotency.key is not None else fingerprint_of(request, body),
    )


def _run_input(call: Call, body: CreateCompletion, overrides: Overrides, echo: JsonObject) -> RunInput:
    """Return the turn's input without its message."""
    kept = new_echo(None, echo, int(call.services.clock.now().timestamp()))
    return RunInput("", body.read_metadata(), overrides, body.read_tools(), echo=kept)


def _user_texts(messages: tuple[NewMessage, ...]) -> tuple[str, ...]:
    """Return the texts of the user as they are stored."""
    return tuple(text_of(clean_content(message.content)) for message in messages if message.role is Role.USER)


async def _find_session(call: Call, name: SessionName) -> ContinuedSession | None:
    """Return the named session; None if it has to be created. Raises NotFound for an id that no session has."""
    sessions = call.services.database.sessions
    if name.id is not None:
        try:
            return await sessions.continue_session(call.owner_id, name.id, MOST_COMPARED)
        except NotFound:
            if name.external_id is None:
                raise
    if name.external_id is None:
        return None
    return await sessions.continue_by_external_id(call.owner_id, name.external_id, MOST_COMPARED)
