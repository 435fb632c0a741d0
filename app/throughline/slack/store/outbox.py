"""The outbox of answers and questions to Slack.

A process delivers under a lease, and each write checks the lease's fence.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from throughline.db.connection.pool import Row, Statement
from throughline.db.connection.signals import Signal
from throughline.db.connection.transactions import Repository, Statements, Transactions
from throughline.db.leases import CLAIMED, HELD, RELEASED, renew_leases, renewal
from throughline.db.statements.rows import MESSAGE_COLUMNS, PINNED, content_from, message_from
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import LeaseLost
from throughline.domain.message import Message, text_of
from throughline.domain.run import LeaseRenewal, RowLease, Run
from throughline.slack.store.people import SlackId

_CLAIM = sql(
    """
    with next as (
        select d.id from slack_deliveries d left join runs r on r.id = d.run_id
        where ((d.status = 'waiting' and d.next_try_at <= now())
                or (d.status = 'delivering' and (d.lease_until < now() or d.claim_id = :claim_id)))
            and not d.id = any(cast(:held as uuid[]))
            and (not :only_ready or d.run_id is null or r.finished_at is not null)
            and not (r.status is not distinct from 'waiting' and r.wait_count = d.asked_wait
                and json_array_length(r.wait -> 'resolutions') = d.asked_given)
            and not exists (
                select 1 from slack_deliveries o
                where o.team_id = d.team_id and o.channel_id = d.channel_id and o.thread_ts = d.thread_ts
                    and o.seq < d.seq and o.status in ('waiting', 'delivering'))
        order by d.seq limit :limit for update of d skip locked
    )
    update slack_deliveries d set status = 'delivering', {claimed} from next where d.id = next.id
    returning exists (select 1 from slack_parts p where p.delivery_id = d.id and p.call_id is not null) as has_asked,
        d.id, d.seq, d.run_id, d.team_id, d.channel_id, d.thread_ts, d.message_ts, d.reader_id,
        d.reader_team_id, d.notice, d.fence, d.attempt, d.rest_starts, extract(epoch from now() - case
            when d.run_id is null then d.created_at
            else coalesce((select r.finished_at from runs r where r.id = d.run_id), now()) end) as ready_seconds
""",
    claimed=CLAIMED,
)
_RENEW = renewal("slack_deliveries")
_FINISH = sql(
    """
    update slack_deliveries set status = :status, {released}, error = :error, finished_at = now()
    where {held} returning 1 as ours
""",
    released=RELEASED,
    held=HELD,
)
_PUT_BACK = sql(
    """
    update slack_deliveries set status = 'waiting', {released}, error = :error, attempt = attempt - :uncounted,
        next_try_at = now() + make_interval(secs => :delay_seconds)
    where {held} returning 1 as ours
""",
    released=RELEASED,
    held=HELD,
)
_IS_OPEN = sql("select from slack_deliveries where id = :id and status in ('waiting', 'delivering')")
_HELD = f"select id from slack_deliveries where {HELD} for share"  # noqa: S608  # our own condition
_BEGIN_PART = sql(
    """
    with held as ({held})
    insert into slack_parts as p (delivery_id, number, starts) select held.id, :number, :starts from held
    on conflict (delivery_id, number) do update set starts = excluded.starts
    returning 1 as ours
""",
    held=_HELD,
)
_NOTE_PART = sql(
    """
    with held as ({held})
    update slack_parts p set ts = :ts, status = :status from held
    where p.delivery_id = held.id and p.number = :number returning 1 as ours
""",
    held=_HELD,
)
_DROP_PARTS = sql(
    """
    with held as ({held})
    delete from slack_parts p using held
    where p.delivery_id = held.id and p.number >= :number and p.call_id is null
""",
    held=_HELD,
)
_PARTS = sql("""
    select number, ts, status, starts, extract(epoch from created_at) as begun from slack_parts
    where delivery_id = :id and call_id is null order by number
""")
_KNOWN = sql("""
    select p.ts from slack_parts p join slack_deliveries d on d.id = p.delivery_id
    where d.team_id = :team_id and d.channel_id = :channel_id and d.thread_ts = :thread_ts and p.ts is not null
""")
_TEXTS = sql("""
    select content, content_blocks from messages where run_id = :run_id and role = 'assistant' order by position
""")

_POSTED = sql("""
    select m.position, d.thread_ts, case m.role when 'user' then d.message_ts else p.ts end as ts
    from messages m join slack_deliveries d on d.run_id = m.run_id
    left join slack_parts p on p.delivery_id = d.id and p.number = 1
    where m.session_id = :session_id and m.position = any(cast(:positions as integer[]))
        and d.team_id = :team_id and d.channel_id = :channel_id
        and (m.role = 'user' or (m.role = 'assistant' and p.ts is not null and d.id <> :id))
""")


class PartStatus(StrEnum):
    """The state of a Slack message of a delivery: about to be posted, posted and growing, or complete."""

    SENDING = "sending"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Part:
    """One Slack message of a delivery. `ts` is Slack's id of it, '' until known.

    `starts` is the offset of its text in the answer. `begun` is when its record was made, in Unix seconds.
    """

    number: int
    ts: str
    status: PartStatus
    starts: int
    begun: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """A claimed delivery to a thread: a run's answer, or a notice if `run_id` is None.

    `message_ts` is the message it answers, and `reader_id` with `reader_team_id` the person who wrote that.
    `ready_seconds` is how long it could have been delivered before it was claimed, 0 while its run was unfinished.
    `rest_starts` is the offset in the answer at which a new message begins after the run's last wait, 0 before the
    first. `has_asked`: it has asked people about calls of its run.
    """

    lease: RowLease
    run_id: RunId | None
    team_id: str
    channel_id: str
    thread_ts: str
    message_ts: str
    reader_id: str
    reader_team_id: str
    notice: str
    attempt: int
    ready_seconds: float
    rest_starts: int = 0
    has_asked: bool = False


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A message of Slack that stands for a stored one: its `ts`, and that of its thread."""

    ts: str
    thread_ts: str


@dataclass(frozen=True, slots=True)
class DeliveryClaim:
    """A process's request for up to `limit` deliveries; with `only_ready` only notices and finished answers.

    `held` are deliveries the process already works on, which are skipped. Their leases may have expired during a
    database outage.
    """

    worker: str
    limit: int
    lease_seconds: float
    only_ready: bool = False
    held: Collection[UUID] = ()


class SlackOutbox:
    """Claims of deliveries in each thread's order, and records of their results.

    `waiting` is woken in this process when a delivery is queued, or ends so that the thread's next one may start.
    """

    def __init__(self, transactions: Transactions, leases: Transactions, waiting: Signal) -> None:
        """Use `transactions`, but `leases` for renewals."""
        self._transactions = transactions
        self._leases = leases
        self.waiting = waiting

    async def claim(self, claim: DeliveryClaim) -> tuple[Delivery, ...]:
        """Claim deliveries that are first in their threads: notices and finished answers, then unfinished answers.

        Within each group the oldest are claimed first. The claimed deliveries are returned in the order of their
        creation. A delivery that was put aside is not claimed before its waiting run was given something or goes on.
        """
        claim_id = new_id()
        rows = await self._transactions.run(lambda tx: _claim(tx, claim, claim_id))
        return tuple(_delivery_from(row) for row in sorted(rows, key=lambda row: int(row["seq"])))

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        """Extend the leases; the result lacks leases that are lost."""
        return await renew_leases(self._leases, _RENEW, leases, lease_seconds)

    async def finish(self, lease: RowLease, *, error: str = "") -> None:
        """End the delivery, as failed if `error` is not empty. Raises LeaseLost."""
        status = "failed" if error else "delivered"
        await _write(self._transactions, _FINISH, lease, status=status, error=error)
        self.waiting.wake()

    async def put_back(self, lease: RowLease, *, delay_seconds: float, error: str = "") -> None:
        """End the lease, to try the delivery again after `delay_seconds`. Raises LeaseLost.

        Without an error this try is not counted.
        """
        uncounted = 0 if error else 1
        await _write(
            self._transactions, _PUT_BACK, lease, delay_seconds=delay_seconds, error=error, uncounted=uncounted
        )

    async def parts(self, delivery_id: UUID) -> tuple[Part, ...]:
        """Return the delivery's Slack messages recorded so far, in order."""
        return tuple(_part_from(row) for row in await self._transactions.fetch(_PARTS, id=delivery_id))

    async def begin_part(self, lease: RowLease, number: int, *, starts: int) -> None:
        """Record that Slack message `number` of the delivery is about to be posted. Raises LeaseLost.

        `starts` is the offset of its text in the answer.
        """
        await _write(self._transactions, _BEGIN_PART, lease, number=number, starts=starts)

    async def note_part(self, lease: RowLease, number: int, ts: str, status: PartStatus) -> None:
        """Record the `ts` of a posted message and its status. Raises LeaseLost."""
        await _write(self._transactions, _NOTE_PART, lease, number=number, ts=ts, status=status.value)

    async def drop_parts(self, lease: RowLease, number: int) -> None:
        """Delete the records of part `number` and all later ones, which were never posted; no error without a lease."""
        await self._transactions.fetch(_DROP_PARTS, id=lease.id, fence=lease.fence, number=number)

    async def known_messages(self, delivery: Delivery) -> frozenset[str]:
        """Return the `ts` of every Slack message that deliveries to this delivery's thread have posted."""
        rows = await self._transactions.fetch(
            _KNOWN, team_id=delivery.team_id, channel_id=delivery.channel_id, thread_ts=delivery.thread_ts
        )
        return frozenset(str(row["ts"]) for row in rows)

    async def posted_messages(
        self, delivery: Delivery, session_id: SessionId, positions: Collection[int]
    ) -> Mapping[int, PostedMessage]:
        """Return the Slack messages of questions and earlier answers at these positions, as far as they are known.

        Only messages in the delivery's channel count. An answer of several Slack messages is represented by the first.
        """
        place = {"id": delivery.lease.id, "team_id": delivery.team_id, "channel_id": delivery.channel_id}
        rows = await self._transactions.fetch(_POSTED, session_id=session_id, positions=list(positions), **place)
        return {row["position"]: PostedMessage(row["ts"], row["thread_ts"]) for row in rows}

    async def is_over(self, lease: RowLease) -> bool:
        """Whether the delivery needs no more work: it has ended, or was erased with its session."""
        return not await self._transactions.fetch(_IS_OPEN, id=lease.id)

    async def texts_of(self, run_id: RunId) -> tuple[str, ...]:
        """Return a run's stored assistant texts in order; steps with tool calls only are left out."""
        rows = await self._transactions.fetch(_TEXTS, run_id=run_id)
        return tuple(said for row in rows if (said := _text_from(row)).strip())


async def _write(transactions: Transactions, statement: Statement, lease: RowLease, **parameters: str | float) -> None:
    """Run a statement of the holder of a delivery. Raises LeaseLost if it changes no row."""
    if not await transactions.fetch(statement, id=lease.id, fence=lease.fence, **parameters):
        raise LeaseLost("Another process is delivering this answer.")


def _text_from(row: Row) -> str:
    content = row["content"]
    return str(content) if content is not None else text_of(content_from(row["content_blocks"]))


def _part_from(row: Row) -> Part:
    return Part(row["number"], row["ts"] or "", PartStatus(row["status"]), row["starts"], float(row["begun"]))


async def _claim(tx: Statements, claim: DeliveryClaim, claim_id: UUID) -> list[Row]:
    """Claim deliveries in two statements, ready ones first.

    Each statement stops at its limit. A single one, ordered by readiness and age, would read all waiting deliveries.
    """
    held = list(claim.held)
    kept = {"worker": claim.worker, "lease_seconds": claim.lease_seconds, "claim_id": claim_id}
    rows = list(await tx.fetch(_CLAIM, limit=claim.limit, only_ready=True, held=held, **kept))
    if not claim.only_ready and len(rows) < claim.limit:
        held += [row["id"] for row in rows]
        rows += await tx.fetch(_CLAIM, limit=claim.limit - len(rows), only_ready=False, held=held, **kept)
    return rows


def _delivery_from(row: Row) -> Delivery:
    return Delivery(
        lease=RowLease(row["id"], row["fence"]),
        run_id=None if row["run_id"] is None else RunId(row["run_id"]),
        team_id=row["team_id"],
        channel_id=row["channel_id"],
        thread_ts=row["thread_ts"],
        message_ts=row["message_ts"],
        reader_id=row["reader_id"],
        reader_team_id=row["reader_team_id"],
        notice=row["notice"],
        attempt=row["attempt"],
        ready_seconds=float(row["ready_seconds"]),
        rest_starts=row["rest_starts"],
        has_asked=row["has_asked"],
    )


_OF = sql("""
    select number, call_id, ts, status <> 'closed' as is_open from slack_parts
    where delivery_id = :id and call_id is not null order by number desc
""")
_BEGIN = sql(
    """
    with held as ({held})
    insert into slack_parts (delivery_id, number, starts, call_id) select held.id, :number, 0, :call_id from held
    returning 1 as ours
""",
    held=_HELD,
)
_DROP = sql(
    """
    with held as ({held})
    delete from slack_parts p using held where p.delivery_id = held.id and p.number = :number
""",
    held=_HELD,
)
_END_TEXT = sql(
    "update slack_deliveries set rest_starts = :rest_starts where {held} returning 1 as ours",
    held=HELD,
)
_PUT_ASIDE = sql(
    """
    update slack_deliveries set status = 'waiting', {released}, error = '', attempt = attempt - 1, next_try_at = now(),
        asked_wait = :asked_wait, asked_given = :asked_given
    where {held} returning 1 as ours
""",
    released=RELEASED,
    held=HELD,
)
_MESSAGES = sql(
    """
    select {message_columns}, {pinned} from messages m
    where m.run_id = :run_id and (m.role = 'assistant' or m.tool_call_id = any(cast(:call_ids as text[])))
    order by m.position
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_CLICKED = sql("""
    select p.call_id, r.owner_id, d.reader_id, d.reader_team_id
    from slack_deliveries d join slack_parts p on p.delivery_id = d.id join runs r on r.id = d.run_id
    where d.run_id = :run_id and d.team_id = :team_id and d.channel_id = :channel_id
        and p.number = :number and p.call_id is not null
""")


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A message that asks about a call. Its `number` is negative; `ts` is '' until it is known to be posted.

    `is_open` is False once the message says what became of the call.
    """

    number: int
    call_id: str
    ts: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class ClickedCall:
    """The call whose message has a clicked button: its run's owner, and who may decide on it."""

    call_id: str
    owner_id: UserId
    reader: SlackId


class CallQuestions(Repository):
    """Records of the messages that ask about calls. Each write checks the delivery's lease."""

    async def of(self, delivery_id: UUID) -> tuple[AskedCall, ...]:
        """Return the delivery's messages about calls, in the order in which they were asked."""
        rows = await self._transactions.fetch(_OF, id=delivery_id)
        return tuple(AskedCall(row["number"], row["call_id"], row["ts"] or "", row["is_open"]) for row in rows)

    async def begin(self, lease: RowLease, number: int, call_id: str) -> None:
        """Record that the message about a call is about to be posted. Raises LeaseLost."""
        await _write(self._transactions, _BEGIN, lease, number=number, call_id=call_id)

    async def drop(self, lease: RowLease, number: int) -> None:
        """Delete the record of a message that was never posted; no error without a lease."""
        await self._transactions.fetch(_DROP, id=lease.id, fence=lease.fence, number=number)

    async def end_text(self, lease: RowLease, rest_starts: int) -> None:
        """Record that the answer's text from `rest_starts` on begins a new message. Raises LeaseLost."""
        await _write(self._transactions, _END_TEXT, lease, rest_starts=rest_starts)

    async def put_aside(self, lease: RowLease, run: Run) -> None:
        """End the lease until the waiting run is given something or goes on. This try is not counted.

        Raises LeaseLost.
        """
        given = 0 if run.wait is None else len(run.wait.resolutions)
        await _write(self._transactions, _PUT_ASIDE, lease, asked_wait=run.wait_count, asked_given=given)

    async def messages(self, run: Run, call_ids: Collection[str]) -> tuple[Message, ...]:
        """Return the run's assistant messages and the results of these calls, in their order."""
        parameters = {"run_id": run.id, "session_id": run.session_id, "call_ids": list(call_ids)}
        return tuple(message_from(row) for row in await self._transactions.fetch(_MESSAGES, **parameters))

    async def clicked(self, team_id: str, channel_id: str, run_id: RunId, number: int) -> ClickedCall | None:
        """Return the call that message `number` asks about; None if nothing was asked so in this channel."""
        where = {"team_id": team_id, "channel_id": channel_id, "run_id": run_id, "number": number}
        rows = await self._transactions.fetch(_CLICKED, **where)
        if not rows:
            return None
        row = rows[0]
        reader = SlackId(row["reader_team_id"], row["reader_id"])
        return ClickedCall(row["call_id"], UserId(row["owner_id"]), reader)
