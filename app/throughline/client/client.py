"""Operations on conversations: open sessions, submit messages, and follow, await and cancel their runs."""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Literal

import structlog

from throughline.client.arguments import (
    Ended,
    Limits,
    read_external_id,
    read_metadata,
    read_number,
    read_on_busy,
    read_optional_text,
    read_overrides,
    read_run_id,
    read_session_id,
    read_status,
    read_text,
    read_tools,
)
from throughline.db.database import Database
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.branch import NewBranch
from throughline.db.sessions.messages import MessageQuery
from throughline.db.sessions.repository import SessionChange, SessionQuery
from throughline.domain.basic_types import JsonObject, RunId, SessionId, UserId
from throughline.domain.errors import DatabaseUnavailable, InvalidInput
from throughline.domain.events import RunEnded, RunEvent, RunWaiting
from throughline.domain.message import Message, Source, clean_text, is_blank
from throughline.domain.run import OnBusy, Run, RunInput, RunStatus, Submission
from throughline.domain.session import NewSession, Session
from throughline.domain.tool import Resolution
from throughline.turn.follow_run import Followed, Following, Idle, follow_while_worked_on, reset_event

PAUSE_SECONDS = 1.0
SAME_OUTAGE_SECONDS = 30.0
"""Failures at most this many seconds apart belong to one outage.

A try over a network that answers nothing takes nearly as long.
"""

log = structlog.get_logger(__name__)


class Outage:
    """Duration of the present outage of the database, as one waiting call sees it."""

    def __init__(self, longest_seconds: float, monotonic: Callable[[], float]) -> None:
        """Wait out an outage for `longest_seconds` at most. `monotonic` returns the time in seconds."""
        self._longest_seconds = longest_seconds
        self._monotonic = monotonic
        self._since = self._last = float("-inf")

    @asynccontextmanager
    async def wait_out(self) -> AsyncGenerator[None]:
        """Suppress DatabaseUnavailable raised in the context, and return about a second later for the next try.

        Raises it once the outage has lasted `longest_seconds`.
        """
        try:
            yield
        except DatabaseUnavailable as error:
            await self._outlast(error)

    async def _outlast(self, error: DatabaseUnavailable) -> None:
        now = self._monotonic()
        if now - self._last > SAME_OUTAGE_SECONDS:
            self._since = now
        self._last = now
        seconds_left = self._since + self._longest_seconds - now
        if seconds_left <= 0:
            raise error
        log.info("client waiting for database", seconds_left=seconds_left)
        pause = PAUSE_SECONDS * (0.5 + random.random())  # noqa: S311  # spreads retries, not for security
        await asyncio.sleep(min(pause, seconds_left))


PAGE = 200


class Client:
    """Client that acts as one user. Sessions and runs of other users raise NotFound, as in every interface.

    Ids may be given as text, for example from an environment variable or a file. Text that is no id raises
    InvalidInput.
    """

    def __init__(
        self, database: Database, following: Following, owner_id: UserId, *, user: str, limits: Limits
    ) -> None:
        """Act in `database` as `user`, whose id is `owner_id`. `limits` define how long calls wait for a run."""
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
        """Return the present state of the session. Raises NotFound."""
        return await self._database.sessions.get(self._owner_id, read_session_id(session_id))

    async def sessions(
        self, *, agent: str = "", title: str = "", metadata: JsonObject | None = None, include_archived: bool = False
    ) -> AsyncGenerator[Session]:
        """Yield the user's sessions, the last used first.

        They are filtered by agent, by a text in the title, and by an object that their metadata contain.
        """
        wanted, q = read_optional_text(agent, field="agent"), read_optional_text(title, field="title")
        kept = read_metadata(metadata)
        cursor: str | None = None
        while True:
            query = SessionQuery(
                limit=PAGE, cursor=cursor, agent=wanted, q=q, metadata=kept, include_archived=include_archived
            )
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
        """Open a session. The agent's name is not checked here, because only workers know the agents.

        Runs of an unknown agent fail. `metadata` is for the program, for example to recognize its session. The same
        `idempotency_key` returns the same session for 30 days after its creation, archived or not. Raises
        IdempotencyKeyReused, InvalidInput.
        """
        new = self._new_session(agent, title, metadata)
        kept = [json.dumps(new.metadata, sort_keys=True)] if new.metadata else []
        keyed = replace(
            new,
            idempotency_key=read_optional_text(idempotency_key, field="idempotency_key"),
            fingerprint=_fingerprint("new_session", agent, title, *kept),
        )
        return (await self._database.sessions.create(keyed))[0]

    async def get_or_create_session(
        self, external_id: str, agent: str = "assistant", *, title: str = "", metadata: JsonObject | None = None
    ) -> Session:
        """Return the user's session with your own id `external_id`, archived or not; open it if there is none.

        A session that exists stays as it is, whatever the other arguments are. Calls at the same time get the same
        session. Raises InvalidInput.
        """
        new = replace(self._new_session(agent, title, metadata), external_id=read_external_id(external_id))
        return (await self._database.sessions.create(new))[0]

    async def branch_session(
        self, session_id: SessionId | str, at: int, *, title: str = "", idempotency_key: str = ""
    ) -> Session:
        """Open a session with copies of the messages 1 to `at` of another one, which stays as it is.

        Without a `title` it has that of the other one. The same `idempotency_key` returns the same session. Raises
        NotFound, InvalidInput for a position beyond the last message or between a tool call and its results,
        SessionBusy if a copied message belongs to an unfinished turn, and IdempotencyKeyReused.
        """
        original_id, position = read_session_id(session_id), read_number(at, field="at")
        new = NewBranch(
            owner_id=self._owner_id,
            original_id=original_id,
            at=position,
            source=Source.WORKER,
            title=clean_text(read_text(title, field="title")),
            idempotency_key=read_optional_text(idempotency_key, field="idempotency_key"),
            fingerprint=_fingerprint("branch_session", str(original_id), str(position), title),
        )
        return (await self._database.sessions.branch(new))[0]

    async def unarchive_session(self, session_id: SessionId | str) -> Session:
        """Take the session out of the archive, so that it accepts messages again. Raises NotFound."""
        change = SessionChange(archived=False)
        return await self._database.sessions.update(self._owner_id, read_session_id(session_id), change)

    async def submit(  # noqa: PLR0913  # all but two are optional, and named
        self,
        session_id: SessionId | str,
        text: str,
        *,
        idempotency_key: str = "",
        on_busy: OnBusy | str = OnBusy.ENQUEUE,
        overrides: Mapping[str, object] | None = None,
        tools: Sequence[Mapping[str, object]] = (),
    ) -> Run:
        """Store a message as a run and return at once. A worker answers it, whatever happens to this process.

        The same `idempotency_key` returns the same run for 30 days and executes nothing twice. This includes a run that
        failed or was cancelled: to ask again, use another key. `on_busy` may be given as text. `overrides` change the
        agent for this turn. `tools` are tools that this program runs. Both have the form that REST takes. If the agent
        does not allow them, the run fails.

        Raises NotFound, InvalidInput (an empty text, an archived session, an unknown `on_busy`, wrong overrides or
        tools),
        SessionBusy, QueueFull, IdempotencyKeyReused, DatabaseUnavailable.
        """
        if is_blank(read_text(text, field="text")):
            raise InvalidInput("The message is blank. Write a message.", field="text")
        session_id = read_session_id(session_id)
        submission = Submission(
            owner_id=self._owner_id,
            session_id=session_id,
            input=RunInput(clean_text(text), overrides=read_overrides(overrides), client_tools=read_tools(tools)),
            source=Source.WORKER,
            author=self._user,
            idempotency_key=read_optional_text(idempotency_key, field="idempotency_key"),
            fingerprint=_fingerprint(
                "submit", str(session_id), text, *(json.dumps(one, sort_keys=True) for one in (overrides, tools) if one)
            ),
            on_busy=read_on_busy(on_busy),
        )
        return (await self._database.runs.submit(submission, None)).run

    async def events(self, run_id: RunId | str, *, after: int = 0) -> AsyncGenerator[RunEvent]:
        """Yield the run's events as they happen, from the one after number `after` up to the last.

        A call can resume at any event, in any process: `after` is the `seq` of the last received event. After a `reset`
        event, the text received so far is invalid. During a database outage the call waits, as `wait` does. Raises
        NoWorkerAvailable, NotFound, DatabaseUnavailable.
        """
        outage, seen, is_over = self._outage(), read_number(after, field="after"), False
        while not is_over:
            async with outage.wait_out(), aclosing(self._events_behind(run_id, seen)) as events:
                async for event in events:
                    seen = event.seq
                    yield event
                is_over = True

    async def wait(self, run_id: RunId | str) -> Ended:
        """Wait until the run has ended, and return the run with its answer; or until it waits for something itself.

        During a database outage, such as a restart, the call waits for up to `Limits.database_away_timeout_seconds` (60
        s) and then raises DatabaseUnavailable. It raises NotFound if the session is deleted meanwhile.

        It raises NoWorkerAvailable if no worker was active on any run for `Limits.no_worker_timeout_seconds` (30 s).
        While workers are busy with runs of others, it goes on waiting. The message is kept in any case, and `wait` may
        be called again.
        """
        outage = self._outage()
        while True:
            async with outage.wait_out():
                return await self._end(run_id)

    async def resume(self, run_id: RunId | str, *given: Resolution) -> Run:
        """Give calls of a waiting run what they wait for, and return the run.

        Resolutions are made by `approve`, `reject`, `edit`, `answer` and `result`. The run goes on once none of its
        calls waits any more. What a call was given first counts, and a repetition of it changes nothing.

        Raises NotFound, InvalidInput (a call does not wait, or for something else), RunNotWaiting, DatabaseUnavailable.
        """
        if not given:
            raise InvalidInput("Nothing is given. Name a call, such as approve(call.id).", field="given")
        resolutions = [replace(one, author=self._user) for one in given]
        return (await self._database.runs.resume(self._owner_id, read_run_id(run_id), resolutions)).run

    async def get_run(self, run_id: RunId | str) -> Run:
        """Return the present state of the run. Raises NotFound."""
        return await self._database.runs.get_run(self._owner_id, read_run_id(run_id))

    async def runs(self, session_id: SessionId | str, *, status: RunStatus | str | None = None) -> AsyncGenerator[Run]:
        """Yield the session's runs, the last submitted first; with `status`, which may be text, only those.

        Raises NotFound, InvalidInput.
        """
        session_id, wanted = read_session_id(session_id), read_status(status)
        cursor: RunId | None = None
        while True:
            query = RunQuery(limit=PAGE, cursor=cursor, status=wanted)
            page = await self._database.runs.list_runs(self._owner_id, session_id, query)
            for run in page.items:
                yield run
            if page.next_cursor is None:
                return
            cursor = page.items[-1].id

    async def cancel(self, run_id: RunId | str) -> Run:
        """Ask the run to stop. Text written so far is kept; an ended run stays unchanged. Raises NotFound."""
        return await self._database.runs.request_cancel(self._owner_id, read_run_id(run_id))

    async def history(
        self, session_id: SessionId | str, *, after: int = 0, include_reasoning: bool = False
    ) -> AsyncGenerator[Message]:
        """Yield all stored messages of the session after position `after`, oldest first. Raises NotFound.

        With `include_reasoning` a message has as `reasoning` what the model wrote before it, if users may read it.
        """
        reasoning: Literal["none", "shown"] = "shown" if include_reasoning else "none"
        session_id, after = read_session_id(session_id), read_number(after, field="after")
        while True:
            query = MessageQuery(after=after, before=None, limit=PAGE, order="asc", reasoning=reasoning)
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
                last = None if isinstance(item, Idle) else item[-1].event
                if isinstance(last, RunEnded):
                    return Ended(last.run, last.answer)
                if isinstance(last, RunWaiting):
                    return Ended(last.run, None)
        raise AssertionError("a run was followed to its end and had no last event")

    def _new_session(self, agent: str, title: str, metadata: JsonObject | None) -> NewSession:
        return NewSession(
            owner_id=self._owner_id,
            agent=clean_text(read_text(agent, field="agent")),
            title=clean_text(read_text(title, field="title")),
            source=Source.WORKER,
            metadata=read_metadata(metadata),
        )

    def _while_worked_on(self, followed: AsyncGenerator[Followed]) -> AsyncGenerator[Followed]:
        timeout_seconds = self._limits.no_worker_timeout_seconds
        return follow_while_worked_on(self._following, followed, timeout_seconds=timeout_seconds)

    def _outage(self) -> Outage:
        return Outage(self._limits.database_away_timeout_seconds, self._following.monotonic)


def _events(item: Followed) -> tuple[RunEvent, ...]:
    return () if isinstance(item, Idle) else item


def _fingerprint(*asked: str) -> str:
    """Return a hash of the request, by which an idempotency key reused for another request is detected."""
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
