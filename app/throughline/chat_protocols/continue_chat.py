"""The turn behind a request that brings the messages of a chat: what of them is new, and what it continues.

A request continues its session, gives a waiting turn what it waits for, repeats an earlier request, or begins a branch.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from uuid import UUID

from throughline.chat_protocols.ask_agent import AgentRequest, ask_agent, check_length, resume_turn
from throughline.chat_protocols.follow_part import FollowedPart, echo_of, new_echo, newest_part
from throughline.db.sessions.find_session import ContinuedSession, UserText
from throughline.domain.basic_types import JsonObject, JsonValue, SessionId
from throughline.domain.errors import ConversationBranched, InvalidInput, NotFound, RunNotWaiting
from throughline.domain.message import CLIENT_MESSAGE_ID, NewMessage, Role, Source, clean_content, is_blank, text_of
from throughline.domain.run import CopiedMessages, OnBusy, Run, RunStatus
from throughline.domain.tool import Resolution, Wait, WaitKind
from throughline.http.call import Call, check_named_session
from throughline.http.headers import Idempotency

SESSION_UUID_VERSION = 7
"""Version of the UUIDs of sessions, as `new_id` makes them. Most clients make those of version 4 for their chats."""


@dataclass(frozen=True, slots=True)
class SessionName:
    """A session as a request names it.

    `id` is that of a session, or None. `external_id` is the caller's own id, or None. Both are set for a header that
    may be either. With `has_whole_chat` the client sends the whole chat, also if that is one message.
    """

    id: SessionId | None = None
    external_id: str | None = None
    has_whole_chat: bool = False


def name_session(text: str, *, has_whole_chat: bool = False) -> SessionName:
    """Return the name of a session: its id or the caller's own. Only a UUID of version 7 may be its id."""
    found = uuid_of(text)
    is_foreign = found is not None and found.version != SESSION_UUID_VERSION
    return SessionName(None if is_foreign else found, text, has_whole_chat)


def uuid_of(text: str) -> SessionId | None:
    """Return a text that has the form of a UUID as the id of a session, None for any other text."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return SessionId(found) if str(found) == text.lower() else None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What a request asks of which agent, and where it came from.

    `name` is the session as the request names it, None if it names none. `texts` are those of the user, oldest first.
    `echo` is what is kept of the request without being used. `is_retry`: the client says that it tries again.
    `fingerprint` is a hash of the request if it names a session without an idempotency key, '' otherwise. `request_id`
    is the client's own id of the request, by which a repetition finds the part that it began; None without one.
    `decide` returns what the request gives to the calls of a wait, besides results and answers among its messages; None
    if it gives nothing else. `decided_calls` are the calls that it names: their answers may come under the id of the
    request that asked for them. `protocol` is that of a client that keeps the chat itself: texts that came otherwise
    may be missing in its chat. `agent_word` is what its clients call an agent.
    """

    call: Call
    source: Source
    name: SessionName | None
    agent_request: AgentRequest
    texts: tuple[str, ...]
    idempotency: Idempotency
    echo: JsonObject = field(default_factory=dict)
    is_retry: bool = False
    fingerprint: str = ""
    request_id: str | None = None
    decide: Callable[[Wait], tuple[Resolution, ...]] | None = None
    decided_calls: frozenset[str] = frozenset()
    protocol: str | None = None
    agent_word: str = "model"

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
            return replace(join_run(submitted.run, self.request_id), is_stored=agent_request.is_stored)
        followed = FollowedPart(submitted.run, is_fresh=submitted.is_fresh)
        ends_with_client = not agent_request.is_stored and self.idempotency.key is None
        return ChatTurn(0, followed, agent_request.is_stored, ends_with_client)


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """The part of a run that a request has begun or joined, and how its events are followed.

    `is_stored`: the session stays. `ends_with_client`: the run is cancelled if the client disconnects, and if it waits.
    `is_joined`: another request has begun the part. `lacks_history`: the session has messages of the user before it
    that the request did not bring.
    """

    part: int
    followed: FollowedPart
    is_stored: bool = True
    ends_with_client: bool = False
    is_joined: bool = False
    lacks_history: bool = False

    def bound_to_client(self) -> "ChatTurn":
        """Return the turn as one whose run is cancelled if its client disconnects."""
        return replace(self, ends_with_client=True)


def join_run(run: Run, request_id: str | None = None) -> ChatTurn:
    """Return the part of a run that the request with this id has begun; without one, the run's newest part."""
    begun = None if request_id is None else part_of_request(run, request_id)
    part = newest_part(run) if begun is None else begun
    return ChatTurn(part, FollowedPart(run, skipped_waits=part), is_joined=True)


REQUEST_ID = "request_id"
"""Key in the echo of a part with the client's own id of the request that began it."""


def part_of_request(run: Run, request_id: str) -> int | None:
    """Return the number of the newest part that a request with this id has begun, None if none did."""
    parts = reversed(range(run.wait_count + 1))
    return next((part for part in parts if echo_of(run, part).get(REQUEST_ID) == request_id), None)


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

    `is_all` says that the session has no earlier one. `elsewhere` are the indexes of texts that the client may lack,
    because they were said in another interface.
    """

    texts: tuple[str | None, ...]
    is_all: bool
    elsewhere: frozenset[int] = frozenset()

    @property
    def known_count(self) -> int:
        """The number of texts that the client has for certain."""
        return len(self.texts) - len(self.elsewhere)


def align(request_texts: Sequence[str], session_texts: SessionTexts, *, has_whole_chat: bool) -> Alignment:
    """Return how the last of `request_texts` follows the session.

    Both are texts of the user, oldest first. The request's earlier texts have to be the session's newest, as far back
    as both reach. A request with a single text continues any session, unless its client sends whole chats. If the
    newest text can be new or repeated, it is repeated only if the request and the session have equally many texts.
    """
    if not session_texts.texts:
        return Alignment.EMPTY
    repeats = _ends_alike(request_texts, session_texts)
    if len(request_texts) == 1 and not has_whole_chat:
        return Alignment.MAY_REPEAT if repeats else Alignment.CONTINUES
    is_unknown = not session_texts.is_all and session_texts.known_count == 0
    continues = len(request_texts) > 1 and (is_unknown or _ends_alike(request_texts[:-1], session_texts))
    if repeats and (not continues or (session_texts.is_all and len(request_texts) == session_texts.known_count)):
        return Alignment.REPEATS
    return Alignment.CONTINUES if continues else Alignment.BRANCHES


def _ends_alike(request_texts: Sequence[str], session_texts: SessionTexts) -> bool:
    """Return whether the request's texts are the session's newest, as far back as both reach, the newest at least."""
    stored, newest = session_texts.texts, len(request_texts) - 1

    @cache
    def fits(asked: int, index: int) -> bool:
        """Return whether the request's texts up to `asked` are those of the session up to `index`."""
        if asked < 0 or index < 0:
            return asked < newest
        is_equal = stored[index] in {None, request_texts[asked]}
        may_be_missing = index in session_texts.elsewhere
        return (is_equal and fits(asked - 1, index - 1)) or (may_be_missing and fits(asked, index - 1))

    return fits(newest, len(stored) - 1)


async def begin_turn(chat: ChatRequest) -> ChatTurn:
    """Store what the request asks, or find the turn that it repeats, and return the part of a run that it begins.

    Raises NotFound (session), InvalidInput, ConversationBranched, SessionBusy, and the errors of `submit`.
    """
    if chat.name is None:
        check_named_session(chat.call.principal, None)
    continued = None if chat.name is None else await find_session(chat.call, chat.name)
    if continued is None:
        return await begin_session(chat)
    begun = await continue_chat(chat, continued)
    return replace(begun, lacks_history=_lacks_history(chat, continued, begun))


async def begin_session(chat: ChatRequest) -> ChatTurn:
    """Begin the turn in a new session. Raises the errors of `ask_agent`."""
    return await chat.ask_once(chat.agent_request, f"new {chat.agent_request.external_id}")


def _lacks_history(chat: ChatRequest, continued: ContinuedSession, begun: ChatTurn) -> bool:
    """Return whether the user has said something before the turn that the request does not bring."""
    run, brought = begun.followed.run, {*chat.texts, None}
    earlier = (one for one in continued.said if one.call_id is None and one.run_id != run.id)
    return run.session_id == continued.session.id and any(one.text not in brought for one in earlier)


async def continue_chat(chat: ChatRequest, continued: ContinuedSession) -> ChatTurn:
    """Begin what the request asks in its session: the rest of a waiting turn, a new turn, or a branch.

    A repetition gets the turn that was begun before: one with the same idempotency key, one that is not finished, one
    that an equal request begins at the same moment, or any if the client says that it tries again.
    """
    alignment = _alignment(chat, continued.said)
    begun = None if _decides_open_call(chat, continued.waiting) else await _begun_turn(chat, continued, alignment)
    if begun is not None:
        return begun
    given = _decisions_and_results(chat, continued.waiting)
    answers = _answers(chat, continued.waiting, given, alignment)
    if continued.waiting is not None and (given or answers):
        resumed = await _resume(chat, continued.waiting, (*given, *answers))
        if answers or not _has_new_message(chat, alignment):
            return resumed
        still_waits = resumed.followed.run.status is RunStatus.WAITING
        continued = continued if still_waits else replace(continued, waiting=None)
    elif chat.decide is not None:
        raise RunNotWaiting(f"No turn of session {continued.session.id} waits for what the request gives.")
    repeated = await _repeated_run(chat, continued, alignment)
    if repeated is not None:
        return join_run(repeated)
    seen = f"{continued.session.id} {continued.said[-1].run_id if continued.said else None}"
    return await chat.ask_once(_new_turn(chat, continued, alignment), seen)


def _has_new_message(chat: ChatRequest, alignment: Alignment) -> bool:
    """Return whether the request has a message of the user that the session lacks, and nothing after it."""
    brought = chat.agent_request.brought
    return brought.user_message is not None and not brought.steps and alignment is Alignment.CONTINUES


def _decides_open_call(chat: ChatRequest, waiting: Run | None) -> bool:
    """Return whether the request decides on a call that waits, so that it repeats no earlier request."""
    wait = None if waiting is None else waiting.wait
    return wait is not None and any(one.id in chat.decided_calls for one in wait.open_calls)


async def _begun_turn(chat: ChatRequest, continued: ContinuedSession, alignment: Alignment) -> ChatTurn | None:
    """Return the turn that a request with the key or the id of this one has begun, None if none did."""
    keyed = await _keyed_run(chat, continued, alignment)
    if keyed is not None:
        return await _replay(chat, keyed)
    joined = await _joined_run(chat, continued)
    return None if joined is None else join_run(joined, chat.request_id)


async def _keyed_run(chat: ChatRequest, continued: ContinuedSession, alignment: Alignment) -> Run | None:
    """Return the turn that the request's idempotency key has begun, None without one.

    It is not looked for if the request is a message and nothing else: then it is found when the turn is submitted.
    """
    is_plain = alignment is Alignment.CONTINUES and not chat.agent_request.brought.steps
    if chat.idempotency.key is None or (is_plain and continued.waiting is None):
        return None
    return await chat.call.services.database.runs.find_keyed(chat.call.owner_id, chat.idempotency.key)


async def _joined_run(chat: ChatRequest, continued: ContinuedSession) -> Run | None:
    """Return the waiting or newest run if a request with the id of this one has begun a part of it, None otherwise."""
    if chat.request_id is None:
        return None
    run = continued.waiting
    if run is None and continued.said and _brings_rest(chat):
        newest = continued.said[-1].run_id
        run = None if newest is None else await chat.call.services.database.runs.get_run(chat.call.owner_id, newest)
    return None if run is None or part_of_request(run, chat.request_id) is None else run


def _brings_rest(chat: ChatRequest) -> bool:
    """Return whether the request is for the rest of a turn, rather than a new message of the user."""
    brought = chat.agent_request.brought
    return chat.decide is not None or brought.user_message is None or bool(brought.steps)


def _alignment(chat: ChatRequest, said: Sequence[UserText]) -> Alignment:
    """Return how the request follows the session. One without a message of the user can only bring results."""
    if not chat.texts:
        return Alignment.CONTINUES
    is_elsewhere = [chat.protocol is not None and one.protocol != chat.protocol for one in said]
    elsewhere = frozenset(index for index, is_so in enumerate(is_elsewhere) if is_so)
    texts = SessionTexts(tuple(one.text for one in said), len(said) < MOST_COMPARED, elsewhere)
    has_whole_chat = (chat.name is not None and chat.name.has_whole_chat) or _sends_newest_again(chat, said)
    return align(chat.texts, texts, has_whole_chat=has_whole_chat)


def _newest_ids(chat: ChatRequest, said: Sequence[UserText]) -> tuple[JsonValue, str | None]:
    """Return the client's ids of the request's newest message and of the session's; None for one without an id."""
    asked = chat.agent_request.brought.user_message
    return None if asked is None else asked.metadata.get(CLIENT_MESSAGE_ID), said[-1].client_id if said else None


def _sends_newest_again(chat: ChatRequest, said: Sequence[UserText]) -> bool:
    """Return whether the client's newest message has the id of the session's newest one, also if its text differs."""
    asked_id, said_id = _newest_ids(chat, said)
    return asked_id is not None and asked_id == said_id


def _is_another_message(chat: ChatRequest, said: Sequence[UserText]) -> bool:
    """Return whether the client's ids tell the newest message of the request from that of the session.

    Without ids a message without text is another one: it may have another picture.
    """
    asked = chat.agent_request.brought.user_message
    if asked is None or not said:
        return False
    asked_id, said_id = _newest_ids(chat, said)
    if asked_id is None or said_id is None:
        return is_blank(text_of(asked.content))
    return asked_id != said_id


def _new_turn(chat: ChatRequest, continued: ContinuedSession, alignment: Alignment) -> AgentRequest:
    """Return the request for a new turn of the session, or of a branch of it."""
    brought = chat.agent_request.brought
    session = continued.session
    if alignment is Alignment.EMPTY:
        return replace(chat.agent_request, session_id=session.id)
    is_new = alignment is Alignment.CONTINUES or (alignment is Alignment.MAY_REPEAT and not brought.steps)
    if not is_new:
        return _branch(chat, continued)
    on_busy = chat.agent_request.on_busy if continued.waiting is None else OnBusy.INTERRUPT
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
    if _is_another_message(chat, continued.said):
        return None
    run = await chat.call.services.database.runs.get_run(chat.call.owner_id, newest)
    return run if chat.is_retry or not run.status.is_final else None


def _branch(chat: ChatRequest, continued: ContinuedSession) -> AgentRequest:
    """Return the request for a new session that takes the name over. Raises ConversationBranched if it cannot.

    If the request brings its newest message alone, the new session begins with copies of what was before it.
    """
    session = continued.session
    check_named_session(chat.call.principal, None)
    if chat.agent_request.external_id is None or (chat.name is not None and chat.name.id == session.id):
        raise ConversationBranched(
            f"The messages before the newest one are not those of session {session.id}, or its newest message is sent "
            "again. Messages of a session never change. Send the newest message alone, or name another session."
        )
    brought, newest = chat.agent_request.brought, continued.said[-1]
    is_alone = _sends_newest_again(chat, continued.said) and not brought.history and newest.position > 1
    copied = CopiedMessages(session.id, newest.position - 1) if is_alone else None
    return replace(chat.agent_request, branched_from=session, copied=copied)


def _decisions_and_results(chat: ChatRequest, waiting: Run | None) -> tuple[Resolution, ...]:
    """Return the decisions and results that the request gives to the calls of the waiting run, possibly none."""
    wait = None if waiting is None else waiting.wait
    if wait is None:
        return ()
    results = _newest_results(chat.agent_request.brought.steps or chat.agent_request.brought.history)
    asked = [one.id for one in wait.calls if one.kind is WaitKind.TOOL_RESULT and one.id in results]
    decided = () if chat.decide is None else chat.decide(wait)
    for call_id in asked:
        check_length(results[call_id], chat.agent_request.param)
    author = chat.call.principal.user_name
    return (*decided, *(Resolution(call_id, results[call_id], author=author) for call_id in asked))


def _answers(
    chat: ChatRequest, waiting: Run | None, given: Sequence[Resolution], alignment: Alignment
) -> tuple[Resolution, ...]:
    """Return the request's new message as the answer to the questions of the waiting run that are not `given` another.

    Empty if the message is not new, or results of tools are missing as well.
    """
    wait, brought = None if waiting is None else waiting.wait, chat.agent_request.brought
    is_new = alignment is Alignment.CONTINUES or (alignment is Alignment.MAY_REPEAT and not chat.is_retry)
    if wait is None or brought.user_message is None or brought.steps or not is_new:
        return ()
    known = {one.call_id for one in given}
    if any(awaited.kind is WaitKind.TOOL_RESULT and awaited.id not in known for awaited in wait.open_calls):
        return ()
    text, author = text_of(brought.user_message.content), chat.call.principal.user_name
    return tuple(
        Resolution(awaited.id, text, author=author) for awaited in wait.shown_questions if awaited.id not in known
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
        word = chat.agent_word
        raise InvalidInput(f"The turn that waits is one of the {word} {waiting.agent!r}. Name it.", field=word)
    known = {one.call_id for one in given}
    open_calls = () if wait is None else wait.open_calls
    missing = [one for one in open_calls if one.kind is WaitKind.TOOL_RESULT and one.id not in known]
    if missing and chat.decide is None:
        raise InvalidInput(f"No tool output found for function call {missing[0].id}.", field=chat.agent_request.param)
    goes_on = all(one.id in known for one in open_calls)
    echo = new_echo(waiting, chat.echo, chat.call.unix_time) if goes_on else waiting.input.echo
    changed = replace(chat.agent_request.run_input, echo=echo)
    followed = await resume_turn(chat.call, waiting, given, changed)
    return ChatTurn(waiting.wait_count if goes_on else waiting.wait_count - 1, followed)


def user_texts(messages: tuple[NewMessage, ...]) -> tuple[str, ...]:
    """Return the texts of the user as they are stored."""
    return tuple(text_of(clean_content(message.content)) for message in messages if message.role is Role.USER)


async def find_session(call: Call, name: SessionName, *, may_create: bool = True) -> ContinuedSession | None:
    """Return the named session; None if it does not exist, so that it has to be created if the request may do that.

    Raises NotFound for an id that no session has, and as `check_named_session` does for an access token.
    """
    found = await _find_session(call, name)
    if found is not None or may_create:
        check_named_session(call.principal, None if found is None else found.session.id)
    return found


async def _find_session(call: Call, name: SessionName) -> ContinuedSession | None:
    sessions = call.services.database.sessions
    try:
        if name.id is not None:
            return await sessions.continue_session(call.owner_id, name.id, MOST_COMPARED)
    except NotFound:
        if name.external_id is None:
            raise
    if name.external_id is None:
        return None
    return await sessions.continue_by_external_id(call.owner_id, name.external_id, MOST_COMPARED)
