"""What a program can do with conversations: open sessions, submit messages, follow, await and stop their runs."""

import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from throughline.client.answer import Ended
from throughline.client.arguments import (
    read_metadata,
    read_number,
    read_on_busy,
    read_optional_text,
    read_run_id,
    read_session_id,
    read_text,
)
from throughline.client.limits import Limits
from throughline.client.wait_for_database import Outage
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.repository import NewSession, SessionChange, SessionQuery
from throughline.domain.errors import InvalidInput
from throughline.domain.events import RunEnded, RunEvent
from throughline.domain.ids import RunId, SessionId, UserId
from throughline.domain.json_types import JsonObject
from throughline.domain.message import Message, Source
from throughline.domain.run import Run, RunInput
from throughline.domain.session import Session
from throughline.domain.submission import OnBusy, Submission
from throughline.domain.text import clean_text, is_blank
from throughline.turn.follow_run import Followed, Following, Idle, follow_while_worked_on, reset_event

PAGE = 200


class Client:
    """Acts as one user. Whatever belongs to somebody else is NotFound, as on every other way in.

    Ids may be given as text, as they stand in an environment variable or a file; what is none raises InvalidInput.
    """

    def __init__(
        self, database: Database, following: Following, owner_id: UserId, *, user: str, limits: Limits
    ) -> None:
        """Act in `database` as `user`, whose id is `owner_id`; `limits` say when waiting for a run is given up."""
        self._following = following
        self._database = database
        self._owner_id = owner_id
        self._user = user
        self._limits = limits

    async def acting_as(self, user: str) -> "Client":
        """Return a client for another user, created if new, over the same connections. Raises InvalidInput."""
        owner_id = await self._database.users.get_or_create(read_text(user, field="user"))
        return Client(self._database, self._following, owner_id, user=user, limits=self._limits)

    async def get_session(self, session_id: SessionId | str) -> Session:
        """Return the session as it stands. Raises NotFound."""
        return await self._database.sessions.get(self._owner_id, read_session_id(session_id))

    async def sessions(
        self, *, agent: str = "", title: str = "", include_archived: bool = False
    ) -> AsyncGenerator[Session]:
        """Yield the user's sessions, the last used first: those with this agent, with `title` in their titles."""
        wanted, q = read_optional_text(agent, field="agent"), read_optional_text(title, field="title")
        cursor: str | None = None
        while True:
            query = SessionQuery(limit=PAGE, cursor=cursor, agent=wanted, q=q, include_archived=include_archived)
            page = await self._database.sessions.list(self._owner_id, query)
            for session in page.items:
                yield session
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    async def new_session(
        self,
        agent: str = "assistant",
        *,
        title: str = "",
        metadata: JsonObject | None = None,
        idempotency_key: str = "",
    ) -> Session:
        """Open a session. Which agents there are is the workers' matter: with an unknown one its runs fail.

        `metadata` is for the program, which may know its session by it again. The same `idempotency_key` returns the
        same session for 30 days from its making, archived or not. Raises IdempotencyKeyReused, InvalidInput.
        """
        agent, title = read_text(agent, field="agent"), read_text(title, field="title")
        kept = read_metadata(metadata)
        new = NewSession(
            owner_id=self._owner_id,
            agent=clean_text(agent),
            title=clean_text(title),
            source=Source.WORKER,
            metadata=kept,
            idempotency_key=read_optional_text(idempotency_key, field="idempotency_key"),
            fingerprint=_fingerprint(
                "new_session", agent, title, *([json.dumps(kept, sort_keys=True)] if kept else ())
            ),
        )
        return (await self._database.sessions.create(new))[0]

    async def unarchive_session(self, session_id: SessionId | str) -> Session:
        """Take the session out of the archive, where it takes no messages. Raises NotFound."""
        change = SessionChange(archived=False)
        return await self._database.sessions.update(self._owner_id, read_session_id(session_id), change)

    async def submit(
        self,
        session_id: SessionId | str,
        text: str,
        *,
        idempotency_key: str = "",
        on_busy: OnBusy | str = OnBusy.ENQUEUE,
    ) -> Run:
        """Store a message as a run and return at once: a worker answers it, whatever becomes of this process.

        The same `idempotency_key` again returns the same run, nothing is done twice; one that failed or was cancelled,
        too, for 30 days: to ask again, take another key. `on_busy` may be given as text.
        Raises NotFound, InvalidInput (an empty text, an archived session, an `on_busy` that is none), SessionBusy,
        QueueFull, IdempotencyKeyReused, DatabaseUnavailable.
        """
        if is_blank(read_text(text, field="text")):
            raise InvalidInput("The message holds nothing to answer.", field="text")
        session_id = read_session_id(session_id)
        submission = Submission(
            owner_id=self._owner_id,
            session_id=session_id,
            input=RunInput(clean_text(text)),
            source=Source.WORKER,
            author=self._user,
            idempotency_key=read_optional_text(idempotency_key, field="idempotency_key"),
            fingerprint=_fingerprint("submit", str(session_id), text),
            on_busy=read_on_busy(on_busy),
        )
        return (await self._database.runs.submit(submission, None)).run

    async def events(self, run_id: RunId | str, *, after: int = 0) -> AsyncGenerator[RunEvent]:
        """Yield the run's events as they happen, from the one behind number `after` up to the last.

        Can be begun again anywhere, in any process: `after` is the `seq` of the last event seen. A `reset` says that
        what was shown so far no longer counts. A database that is away is waited for, as by `wait`. Raises
        NoWorkerAvailable, NotFound, DatabaseUnavailable.
        """
        outage, seen, is_over = self._outage(), read_number(after, field="after"), False
        while not is_over:
            async with outage.outlasting(), aclosing(self._events_behind(run_id, seen)) as events:
                async for event in events:
                    seen = event.seq
                    yield event
                is_over = True

    async def wait(self, run_id: RunId | str) -> Ended:
        """Return once the run has ended.

        A database that is away, as in a restart, is waited for, up to `Limits.database_away_timeout_seconds` (60 s);
        then DatabaseUnavailable is raised. Raises NotFound where its session is deleted meanwhile, NoWorkerAvailable
        where no worker was at work on any run for `Limits.no_worker_timeout_seconds` (30 s): behind the runs of others
        one waits on. The message is kept then, and waiting may be begun again.
        """
        outage = self._outage()
        while True:
            async with outage.outlasting():
                return await self._end(run_id)

    async def get_run(self, run_id: RunId | str) -> Run:
        """Return the run as it stands. Raises NotFound."""
        return await self._database.runs.get_run(self._owner_id, read_run_id(run_id))

    async def cancel(self, run_id: RunId | str) -> Run:
        """Ask the run to stop; what was written is kept. One that has ended stays as it is. Raises NotFound."""
        return await self._database.runs.request_cancel(self._owner_id, read_run_id(run_id))

    async def history(self, session_id: SessionId | str, *, after: int = 0) -> AsyncGenerator[Message]:
        """Yield all stored messages of the session behind position `after`, oldest first. Raises NotFound."""
        session_id, after = read_session_id(session_id), read_number(after, field="after")
        while True:
            query = MessageQuery(after=after, before=None, limit=PAGE, order="asc")
            page = await self._database.messages.list_messages(self._owner_id, session_id, query)
            for message in page.items:
                yield message
            if page.next_cursor is None:
                return
            after = page.items[-1].position

    async def _events_behind(self, run_id: RunId | str, seen: int) -> AsyncGenerator[RunEvent]:
        run = await self.get_run(run_id)
        start = await self._following.find_start(run, seen)
        if start is None:
            return
        if start < 0:
            yield reset_event(run)
        watched = self._while_worked_on(self._following.events(run, after=max(start, 0)))
        async with aclosing(watched) as followed:
            async for item in followed:
                for event in _events(item):
                    yield event

    async def _end(self, run_id: RunId | str) -> Ended:
        ending = self._while_worked_on(self._following.end(await self.get_run(run_id)))
        async with aclosing(ending) as followed:
            async for item in followed:
                if not isinstance(item, Idle) and isinstance(item[-1].event, RunEnded):
                    return Ended(item[-1].event.run, item[-1].event.answer)
        raise AssertionError("a run was followed to its end and had no last event")

    def _while_worked_on(self, followed: AsyncGenerator[Followed]) -> AsyncGenerator[Followed]:
        timeout_seconds = self._limits.no_worker_timeout_seconds
        return follow_while_worked_on(self._following, followed, timeout_seconds=timeout_seconds)

    def _outage(self) -> Outage:
        return Outage(self._limits.database_away_timeout_seconds, self._following.monotonic)


def _events(item: Followed) -> tuple[RunEvent, ...]:
    return () if isinstance(item, Idle) else item


def _fingerprint(*asked: str) -> str:
    """Hash what is asked for, so that a key that comes with something else is noticed."""
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
