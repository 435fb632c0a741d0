"""The run repository: storage of runs. After a change, waiting workers and readers of the run are notified."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.transactions import Transactions
from throughline.db.leases import renew_leases
from throughline.db.runs import cancel as run_cancel
from throughline.db.runs import finish as run_finish
from throughline.db.runs import resume as run_resume
from throughline.db.runs import submit as run_submit
from throughline.db.runs.claim import RENEW, STOPPED, claim_runs, give_back
from throughline.db.runs.finish import Ending
from throughline.db.runs.list_runs import Removal, RunQuery, list_runs, read_run, remove_messages
from throughline.db.runs.resume import Resumed
from throughline.db.runs.submit import NewRun
from throughline.db.runs.submit_conversation import submit_conversation
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.statements.rows import MESSAGE_IDS, RUN_COLUMNS, run_from, run_not_found
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import Page, RunId, SessionId, UserId
from throughline.domain.events import NewEvent
from throughline.domain.message import REDACTED_TEXT
from throughline.domain.run import (
    Caps,
    ClaimedRuns,
    Claimer,
    Lease,
    LeaseRenewal,
    Outcome,
    RowLease,
    Run,
    RunError,
    RunInput,
    RunStatus,
    Submission,
    Submitted,
    WaitingTurns,
)
from throughline.domain.tool import Resolution

_WAITING = sql(
    """
    select {run_columns}, {message_ids} from runs r
    where r.session_id = :session_id and r.owner_id = :owner_id and r.status = 'waiting'
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_KEYED = sql(
    """
    select {run_columns}, {message_ids} from runs r
    where r.owner_id = :owner_id and r.idempotency_key = :idempotency_key
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)
_TO_CONTINUE = sql(
    """
    select {run_columns}, {message_ids},
        not exists (select 1 from runs n where n.session_id = r.session_id and n.seq > r.seq) as is_newest,
        coalesce((select bool_and(m.content is not distinct from :redacted_text)
            from messages m where m.run_id = r.id), false) as is_redacted
    from runs r where r.id = :run_id and r.owner_id = :owner_id
""",
    run_columns=RUN_COLUMNS,
    message_ids=MESSAGE_IDS,
)


_COUNT_WAITING = sql("""
    select 'queued' as status, count(*) as turns,
        coalesce(extract(epoch from now() - min(q.created_at)), 0)::float8 as oldest_seconds
    from runs q where q.status = 'queued'
    union all
    select 'waiting', count(*), coalesce(extract(epoch from now() - min(w.created_at)), 0)::float8
    from runs w where w.status = 'waiting'
""")


@dataclass(frozen=True, slots=True)
class ContinuedRun:
    """A run as a request continues it.

    `is_newest`: no later run of its session was submitted. `is_redacted`: it has messages, and all are redacted.
    """

    run: Run
    is_newest: bool
    is_redacted: bool


class RunRepository:
    """Storage of runs; implements the interface RunStore (ports/storage.py)."""

    def __init__(
        self, transactions: Transactions, leases: Transactions, notifier: Notifier, caps: Caps, loaded: MessageCache
    ) -> None:
        """Use `transactions`, but `leases` for renewals; notify workers and readers through `notifier`.

        The rows of changed messages are removed from the cache `loaded`.
        """
        self._loaded = loaded
        self._transactions = transactions
        self._leases = leases
        self._notifier = notifier
        self._caps = caps

    async def submit(self, submission: Submission, claimer: Claimer | None) -> Submitted:
        new, opening = NewRun(submission, run_submit.new_run_id(), claimer, self._caps), submission.opening
        if opening is not None:
            submitted = await self._transactions.run(lambda tx: submit_conversation(tx, new, opening))
        else:
            quick = await run_submit.submit_in_one_statement(self._transactions, new)
            submitted = quick or await self._submit_in_line(new)
        if submitted.claimed is None and not submitted.replayed:
            self._notifier.announce_work()
        return submitted

    async def _submit_in_line(self, new: NewRun) -> Submitted:
        submitted, stopped = await self._transactions.run(lambda tx: run_submit.submit(tx, new))
        if stopped is not None:
            self._notifier.announce_cancel(stopped)
            self._notifier.announce_events(stopped)
        return submitted

    async def claim(self, claimer: Claimer) -> ClaimedRuns:
        return await claim_runs(self._transactions, claimer, self._caps)

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        return await renew_leases(self._leases, RENEW, leases, lease_seconds)

    async def find_stopped(self, run_ids: Collection[RunId]) -> frozenset[RunId]:
        rows = await self._transactions.fetch(STOPPED, ids=list(run_ids))
        return frozenset(RunId(row["id"]) for row in rows)

    async def finish(self, lease: Lease, outcome: Outcome, unstored: Sequence[NewEvent], next_seq: int) -> Run:
        end, times = Ending(lease, outcome, unstored, next_seq), self._notifier.work.times
        finished = await run_finish.finish_in_one_statement(self._transactions, end)
        if finished is None:
            finished = await self._transactions.run(lambda tx: run_finish.finish(tx, end))
        self._notifier.announce_events(finished.run.id, finished.events)
        if finished.may_have_job:
            self._notifier.announce_jobs()
        if finished.has_queued or self._notifier.work.times != times:  # a claim meanwhile counted this run as running
            self._notifier.work.wake()
        return finished.run

    async def fail(self, lease: Lease, error: RunError) -> None:
        await run_finish.fail(self._transactions, lease, error)
        self._notifier.announce_events(lease.run_id)
        self._notifier.announce_work()

    async def give_back(self, lease: Lease, *, counts: bool = False) -> None:
        reset = await self._transactions.run(lambda tx: give_back(tx, lease, counts=counts))
        if reset is not None:
            self._notifier.announce_events(lease.run_id, [reset])
            self._notifier.announce_work()

    async def get_run(self, owner_id: UserId, run_id: RunId) -> Run:
        return await read_run(self._transactions, owner_id, run_id)

    async def get_continued(self, owner_id: UserId, run_id: RunId) -> ContinuedRun:
        """Return the run, and what has followed it. Raises NotFound if it is missing or another user's."""
        parameters = {"run_id": run_id, "owner_id": owner_id, "redacted_text": REDACTED_TEXT}
        rows = await self._transactions.fetch(_TO_CONTINUE, **parameters)
        if not rows:
            raise run_not_found(run_id)
        return ContinuedRun(run_from(rows[0]), rows[0]["is_newest"], rows[0]["is_redacted"])

    async def list_runs(self, owner_id: UserId, session_id: SessionId, query: RunQuery) -> Page[Run]:
        """Return one page of the session's runs, the last submitted first. Raises NotFound, InvalidInput (cursor)."""
        return await list_runs(self._transactions, owner_id, session_id, query)

    async def waiting_of(self, owner_id: UserId, session_id: SessionId) -> Run | None:
        """Return the session's waiting run; None without one, or if the session is another user's."""
        rows = await self._transactions.fetch(_WAITING, session_id=session_id, owner_id=owner_id)
        return run_from(rows[0]) if rows else None

    async def find_keyed(self, owner_id: UserId, idempotency_key: str) -> Run | None:
        """Return the owner's run that was submitted with the idempotency key, None without one."""
        rows = await self._transactions.fetch(_KEYED, owner_id=owner_id, idempotency_key=idempotency_key)
        return run_from(rows[0]) if rows else None

    async def resume(
        self, owner_id: UserId, run_id: RunId, given: Sequence[Resolution], changed: RunInput | None = None
    ) -> Resumed:
        """Store what calls of a waiting run were given, and queue it once it waits for nothing more.

        `changed` replaces the run's input; its message is the same.

        A repetition of what is stored changes nothing. Raises NotFound, InvalidInput, RunNotWaiting.
        """
        resumed = await self._transactions.run(lambda tx: run_resume.resume(tx, owner_id, run_id, given, changed))
        if resumed.run.status is RunStatus.QUEUED:
            self._notifier.announce_work()
        return resumed

    async def remove_messages(self, wanted: Removal) -> None:
        """Redact the chosen messages of a run and replace its input, as `wanted` says.

        The session is erased if it has no message without redaction then.

        Raises NotFound. Raises SessionBusy if the session, or another one that quotes it, has an unfinished turn.
        """
        try:
            is_cancelled = await self._transactions.run(lambda tx: remove_messages(tx, wanted))
        finally:  # do not keep the old texts in memory until the next turn
            self._loaded.forget(wanted.session_id)
        if is_cancelled:
            self._notifier.announce_events(wanted.run_id)
            self._notifier.announce_work()

    async def expire_waits(self, now: datetime) -> int:
        """Queue the runs whose wait has expired at `now`, up to a limit; return how many."""
        expired = await self._transactions.run(lambda tx: run_resume.expire_waits(tx, now))
        if expired:
            self._notifier.announce_work()
        return len(expired)

    async def count_waiting(self) -> tuple[WaitingTurns, ...]:
        """Return the number and the age of the turns that are queued, and of those that wait, of all users."""
        rows = await self._transactions.fetch(_COUNT_WAITING)
        return tuple(WaitingTurns(RunStatus(row["status"]), row["turns"], row["oldest_seconds"]) for row in rows)

    async def request_cancel(self, owner_id: UserId, run_id: RunId) -> Run:
        """Cancel a queued or waiting run at once, or request a running one to stop, and return the run.

        An ended run is returned unchanged. Raises NotFound if the run is missing or another user's.
        """
        run = await self._transactions.run(lambda tx: run_cancel.request_cancel(tx, owner_id, run_id))
        if run is None:
            return await self.get_run(owner_id, run_id)
        if run.status.is_final:
            self._notifier.announce_events(run_id)
            self._notifier.announce_work()
        else:
            self._notifier.announce_cancel(run_id)
        return run
