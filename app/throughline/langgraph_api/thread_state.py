"""The state of a thread as clients read it: the newest messages of its session, and what its newest run waits for.

A checkpoint is the end of a turn. Its id is that of the turn's last message.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from throughline.chat_protocols.continue_chat import uuid_of
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.repository import SessionQuery
from throughline.domain.basic_types import JsonValue, SessionId
from throughline.domain.errors import NotFound
from throughline.domain.message import Message, Role, clean_text
from throughline.domain.run import Run, RunError, RunStatus
from throughline.domain.session import Session
from throughline.http.call import Call, check_named_session, message_id_of
from throughline.langgraph_api.assistants import LLM_NODE, TOOL_NODE, assistant_id
from throughline.langgraph_api.interrupts import interrupts_of
from throughline.langgraph_api.messages import message_json
from throughline.wire.events import UNKNOWN_ERROR
from throughline.wire.json_shape import JsonDict

MAX_STATE_MESSAGES = 200
"""Newest messages that a state has."""

MAX_HISTORY_CHARACTERS = 8_000_000
"""Most characters of the messages of all states in one answer: each state has the messages of those before it again."""

MAX_NAME_CHARACTERS = 40
BEHIND_WAITING = frozenset({RunStatus.QUEUED, RunStatus.CANCELLED})
"""What a run may be that was submitted after one that still waits."""


async def find_thread(call: Call, name: str) -> Session:
    """Return the session with this id, or else with this external id. Raises NotFound."""
    session_id, sessions = uuid_of(name), call.services.database.sessions
    if session_id is None:
        raise no_thread(name)
    try:
        found = await sessions.get(call.owner_id, session_id)
    except NotFound:
        page = await sessions.list(
            call.owner_id, SessionQuery(limit=1, external_id=name.lower(), include_archived=True)
        )
        if not page.items:
            raise no_thread(name) from None
        found = page.items[0]
    check_named_session(call.principal, found.id)
    return found


def no_thread(name: str) -> NotFound:
    """Return the error for a thread that does not exist."""
    return NotFound(f"There is no thread {clean_text(name)[:MAX_NAME_CHARACTERS]}.")


def thread_id_of(session: Session) -> str:
    """Return the id of the session's thread: the UUID that the client chose for it, or the session's own."""
    chosen = session.external_id or ""
    return chosen if chosen == chosen.lower() and uuid_of(chosen) is not None else str(session.id)


@dataclass(frozen=True, slots=True)
class ThreadState:
    """A state of a thread: its messages, oldest first, and the checkpoint before it, None for the first.

    `run` is the thread's current run; None for an older state, or in a thread without runs.
    """

    session: Session
    messages: tuple[Message, ...] = ()
    parent: Message | None = None
    run: Run | None = None

    @property
    def values(self) -> JsonDict:
        """The values of the state, without interrupts."""
        return {"messages": [message_json(message) for message in self.messages]}

    @property
    def interrupts(self) -> list[JsonValue]:
        """The interrupts of the waiting run."""
        return [] if self.run is None else interrupts_of(self.run)

    def as_json(self) -> JsonDict:
        """Return the state as clients read it."""
        last = self.messages[-1] if self.messages else None
        tasks = _tasks(self.run)
        is_unfinished = self.run is not None and not self.run.status.is_final
        run_id = None if last is None or last.run_id is None else str(last.run_id)
        agent = self.session.agent
        return {
            "values": self.values,
            "next": [task["name"] for task in tasks] if is_unfinished else [],
            "tasks": [*tasks],
            "interrupts": self.interrupts,
            "checkpoint": _checkpoint(self.session, last),
            "parent_checkpoint": None if self.parent is None else _checkpoint(self.session, self.parent),
            "metadata": {"run_id": run_id, "graph_id": agent, "assistant_id": assistant_id(agent)},
            "created_at": (self.session.created_at if last is None else last.created_at).isoformat(),
        }


def values_json(messages: Iterable[JsonDict], interrupts: Sequence[JsonValue]) -> JsonDict:
    """Return the values of a state, with its interrupts if it has any."""
    return {"messages": [*messages], **({"__interrupt__": [*interrupts]} if interrupts else {})}


def error_of(run: Run) -> RunError | None:
    """Return why a run failed, None if it has not."""
    return (run.error or UNKNOWN_ERROR) if run.status is RunStatus.FAILED else None


def _tasks(run: Run | None) -> list[JsonDict]:
    """Return what the run has to do, or has failed to do. One that was answered or cancelled has no task."""
    if run is None or run.status in {RunStatus.SUCCEEDED, RunStatus.CANCELLED}:
        return []
    error = error_of(run)
    task: JsonDict = {"id": str(run.id), "name": TOOL_NODE if run.status is RunStatus.WAITING else LLM_NODE, "path": []}
    task |= {"error": None if error is None else error.detail, "interrupts": interrupts_of(run)}
    return [{**task, "checkpoint": None, "state": None, "result": None}]


def _checkpoint(session: Session, last: Message | None) -> JsonDict:
    found = None if last is None else str(last.id)
    return {"thread_id": thread_id_of(session), "checkpoint_ns": "", "checkpoint_id": found, "checkpoint_map": {}}


async def current_run(call: Call, session_id: SessionId) -> Run | None:
    """Return the session's waiting run, or else its newest; None without one."""
    runs = call.services.database.runs
    page = await runs.list_runs(call.owner_id, session_id, RunQuery(1))
    newest = page.items[0] if page.items else None
    if newest is not None and newest.status in BEHIND_WAITING:
        return await runs.waiting_of(call.owner_id, session_id) or newest
    return newest


async def read_state(call: Call, session: Session, checkpoint_id: str | None = None) -> ThreadState:
    """Return the state at a checkpoint, without one the state as it is now. Raises NotFound."""
    last = None if checkpoint_id is None else await find_checkpoint(call, session, checkpoint_id)
    is_newest = last is None or last.position == session.message_count
    messages = await _read_through(call, session, last)
    return ThreadState(session, messages, _parent(messages), await current_run(call, session.id) if is_newest else None)


async def read_history(call: Call, session: Session, before: str | None, limit: int) -> list[ThreadState]:
    """Return the states at the ends of turns, the newest first. Raises NotFound for a checkpoint that does not exist.

    `before` is the checkpoint that the states precede, None for all. There are fewer than `limit` if their messages are
    too long together.
    """
    last = None if before is None else await find_checkpoint(call, session, before)
    ends = await _turn_ends(call, session, last, limit + 1)
    run = await current_run(call, session.id) if ends and last is None else None
    states: list[ThreadState] = []
    size = 0
    for end, parent in zip_longest(ends[:limit], ends[1 : limit + 1]):
        messages = await _read_through(call, session, end)
        size += sum(len(str(message.content)) for message in messages)
        if states and size > MAX_HISTORY_CHARACTERS:
            break
        states.append(ThreadState(session, messages, parent, None if states else run))
    return states


async def _turn_ends(call: Call, session: Session, next_message: Message | None, wanted: int) -> list[Message]:
    """Return the last messages of the turns before `next_message`, the newest first. None stands for the thread's end.

    Messages are read until `wanted` are found; there may be more.
    """
    ends: list[Message] = []
    before = None if next_message is None else next_message.position
    while True:
        page = await read_newest(call, session.id, before)
        for message in reversed(page):
            if next_message is None or next_message.role is Role.USER:
                ends.append(message)
            next_message = message
        if len(ends) >= wanted or len(page) <= 1 or page[0].position == 1:
            return ends
        before = page[0].position


async def find_checkpoint(call: Call, session: Session, checkpoint_id: str) -> Message:
    """Return the last message of a checkpoint. Raises NotFound."""
    try:
        found = message_id_of(checkpoint_id)
        return await call.services.database.messages.get_message(call.owner_id, session.id, found)
    except NotFound:
        raise NotFound(f"The thread has no checkpoint {clean_text(checkpoint_id)[:MAX_NAME_CHARACTERS]}.") from None


async def _read_through(call: Call, session: Session, last: Message | None) -> tuple[Message, ...]:
    """Return at most MAX_STATE_MESSAGES newest messages up to `last`, oldest first; the thread's newest for None."""
    return await read_newest(call, session.id, None if last is None else last.position + 1)


def _parent(messages: Sequence[Message]) -> Message | None:
    """Return the end of the turn before the newest one, None if that is not among the messages."""
    asked = max((place for place, message in enumerate(messages) if message.role is Role.USER), default=0)
    return messages[asked - 1] if asked else None


async def read_newest(call: Call, session_id: SessionId, before: int | None = None) -> tuple[Message, ...]:
    """Return at most MAX_STATE_MESSAGES newest messages, oldest first, before a position if one is given."""
    query = MessageQuery(before=before, limit=MAX_STATE_MESSAGES, order="desc")
    page = await call.services.database.messages.list_messages(call.owner_id, session_id, query)
    return tuple(reversed(page.items))
