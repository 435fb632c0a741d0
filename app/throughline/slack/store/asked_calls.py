"""What a delivery has asked people in Slack: the messages about calls of waiting runs, and deliveries put aside."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from throughline.db.connection.transactions import Transactions
from throughline.db.leases import HELD, RELEASED
from throughline.db.statements.rows import MESSAGE_COLUMNS, PINNED, message_from
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, UserId
from throughline.domain.message import Message
from throughline.domain.run import RowLease, Run
from throughline.slack.store.outbox import check_held
from throughline.slack.store.people import SlackId

_HELD = f"select id from slack_deliveries where {HELD} for share"  # noqa: S608  # our own condition
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


class AskedCalls:
    """Records of the messages that ask about calls. Each write checks the delivery's lease."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def of(self, delivery_id: UUID) -> tuple[AskedCall, ...]:
        """Return the delivery's messages about calls, in the order in which they were asked."""
        rows = await self._transactions.fetch(_OF, id=delivery_id)
        return tuple(AskedCall(row["number"], row["call_id"], row["ts"] or "", row["is_open"]) for row in rows)

    async def begin(self, lease: RowLease, number: int, call_id: str) -> None:
        """Record that the message about a call is about to be posted. Raises LeaseLost."""
        parameters = {"number": number, "call_id": call_id}
        check_held(await self._transactions.fetch(_BEGIN, id=lease.id, fence=lease.fence, **parameters))

    async def drop(self, lease: RowLease, number: int) -> None:
        """Delete the record of a message that was never posted; no error without a lease."""
        await self._transactions.fetch(_DROP, id=lease.id, fence=lease.fence, number=number)

    async def end_text(self, lease: RowLease, rest_starts: int) -> None:
        """Record that the answer's text from `rest_starts` on begins a new message. Raises LeaseLost."""
        check_held(await self._transactions.fetch(_END_TEXT, id=lease.id, fence=lease.fence, rest_starts=rest_starts))

    async def put_aside(self, lease: RowLease, run: Run) -> None:
        """End the lease until the waiting run is given something or goes on. This try is not counted.

        Raises LeaseLost.
        """
        given = 0 if run.wait is None else len(run.wait.resolutions)
        parameters = {"asked_wait": run.wait_count, "asked_given": given}
        check_held(await self._transactions.fetch(_PUT_ASIDE, id=lease.id, fence=lease.fence, **parameters))

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
