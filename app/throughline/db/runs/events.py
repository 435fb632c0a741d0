"""Storage of run events: written in batches by the process that executes the run, read by readers of the run."""

from collections.abc import Sequence

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.runs.event_rows import (
    NEW_EVENTS,
    RUN_EVENT_TYPES,
    SHOWN_COLUMNS,
    SHOWN_MESSAGE_ID,
    as_stored,
    event_from,
    event_parameters,
)
from throughline.db.statements.rows import USER_MESSAGE_ID, lease_lost
from throughline.db.statements.sql import sql
from throughline.domain.events import EventType, HistoryQuoted, NewEvent, RunEvent
from throughline.domain.ids import RunId, SessionId
from throughline.domain.run import Lease

_STORE = sql(
    """
    insert into run_events (run_id, seq, type, data)
    select :run_id, e.seq, e.type, cast(e.data as json) from {rows}
    on conflict (run_id, seq) do nothing
""",
    rows=NEW_EVENTS,
)
_STORE_HELD = sql(
    """
    with held as (
        select r.id from runs r where r.id = :run_id and r.fence = :fence and r.status = 'running' for share
    ), hurried as (
        select held.id, set_config('synchronous_commit', 'off', true) from held
    ), written as (
        insert into run_events (run_id, seq, type, data)
        select hurried.id, e.seq, e.type, cast(e.data as json) from hurried cross join {rows}
        on conflict (run_id, seq) do nothing
    )
    select id from hurried
""",
    rows=NEW_EVENTS,
)
_READ = sql(
    """
    with asked as (
        select e.seq, e.type, e.data, {shown_message_id} as shown_id from run_events e
        where e.run_id = :run_id and e.seq > :after_seq order by e.seq limit :limit
    ), measured as (
        select asked.*, octet_length(cast(asked.data as text))
            + coalesce(octet_length(m.content), octet_length(cast(m.content_blocks as text)), 0)
            + coalesce(octet_length(cast(m.tool_calls as text)), 0)
            + coalesce(octet_length(cast(r.input as text)), 0) as bytes
        from asked left join messages m on m.id = asked.shown_id
            left join runs r on r.id = :run_id and asked.type in {run_event_types}
    ), counted as (
        select measured.*, sum(bytes) over (order by seq) - bytes as bytes_before from measured
    )
    select counted.seq, counted.type, counted.data, m.id as run_message_id, {shown_columns},
        {user_message_id} as run_user_message_id,
        exists (select 1 from message_pins p where p.session_id = m.session_id and p.message_id = m.id) as pinned
    from counted left join messages m on m.id = counted.shown_id
        left join runs r on r.id = :run_id and counted.type in {run_event_types}
    where counted.bytes_before < :max_bytes order by counted.seq
""",
    shown_message_id=SHOWN_MESSAGE_ID,
    shown_columns=SHOWN_COLUMNS,
    user_message_id=USER_MESSAGE_ID,
    run_event_types=RUN_EVENT_TYPES,
)
_NEXT = sql("""
    select coalesce(
        (select max(e.seq) + 1 from run_events e where e.run_id = r.id),
        case when (select w.stats_reset from pg_stat_wal w) > r.started_at then r.fence * :stride + 1 else 1 end
    ) as seq
    from runs r where r.id = :run_id
""")
_NEWEST_QUOTED = sql("""
    select e.data from run_events e
    where e.run_id = (
            select m.run_id from messages m where m.session_id = :session_id order by m.position desc limit 1)
        and e.type = :type
    order by e.seq desc limit 1
""")

STRIDE = 100_000
"""Step between the event numbers of successive fences after a crash; a holder writes fewer events.

The event table is unlogged, so a server crash empties it. New numbers then start beyond those that readers have seen.
The crash is detected by the server's statistics, which it also resets.
"""

PAGE_BYTES = 8_000_000
"""Size limit of a page of events; the page ends with the event that reaches it."""


class EventRepository:
    """Storage of run events; implements the interface EventStore (ports/storage.py), and reads events for readers."""

    def __init__(self, transactions: Transactions, notifier: Notifier) -> None:
        """Use `transactions`, and notify readers through `notifier`."""
        self._transactions = transactions
        self._notifier = notifier

    async def append_events(self, lease: Lease, events: Sequence[NewEvent]) -> None:
        """Store a batch of events under the lease and notify readers. Raises LeaseLost.

        The commit does not wait for the disk: a machine crash may lose events of a running turn, but not its messages.
        """
        if not events:
            return
        rows = await self._transactions.fetch(
            _STORE_HELD, run_id=lease.run_id, fence=lease.fence, **_parameters(events)
        )
        if not rows:
            raise lease_lost(lease)
        self._notifier.announce_events(lease.run_id, events)

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        """Return the stored events after number `after_seq` in order: up to `limit`, fewer if they are large.

        Events about an erased message are left out.
        """
        rows = await self._transactions.fetch(
            _READ, run_id=run_id, after_seq=after_seq, limit=limit, max_bytes=PAGE_BYTES
        )
        read = ((row["seq"], event_from(row)) for row in rows)
        return tuple(RunEvent(run_id, seq, event) for seq, event in read if event is not None)

    async def newest_quoted(self, session_id: SessionId) -> HistoryQuoted | None:
        """Return the event with the messages that the prompt of the session's newest turn quoted.

        None if the prompt quoted nothing, or if the turn's events are deleted.
        """
        rows = await self._transactions.fetch(
            _NEWEST_QUOTED, session_id=session_id, type=EventType.HISTORY_QUOTED.value
        )
        return HistoryQuoted(**rows[0]["data"]) if rows else None


async def store_events(tx: Statements, run_id: RunId, events: Sequence[NewEvent]) -> None:
    """Store events in a transaction that has already locked the run's row, so that no fence check is needed."""
    if events:
        await tx.fetch(_STORE, run_id=run_id, **_parameters(events))


def _parameters(events: Sequence[NewEvent]) -> dict[str, object]:
    return event_parameters([new.seq for new in events], [as_stored(new.event) for new in events])


async def next_event(tx: Statements, run_id: RunId) -> int:
    """Return the first unused event number of the run; 1 if no reader can have seen any event of it.

    If a server crash may have emptied the event table, it is beyond all numbers that earlier holders used (STRIDE).
    """
    rows = await tx.fetch(_NEXT, run_id=run_id, stride=STRIDE)
    return int(rows[0]["seq"]) if rows else 1
