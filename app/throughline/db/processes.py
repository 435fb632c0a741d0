"""The table of running processes: each process updates its row regularly and deletes it when it ends.

All times are by the database's clock, because machines' clocks may differ.
"""

from dataclasses import asdict

from throughline.db.connection.transactions import Transactions
from throughline.db.statements.sql import sql
from throughline.domain.ids import ProcessId
from throughline.domain.service_status import Process, ProcessState

HEARTBEAT_SECONDS = 5.0
SILENT_SECONDS = 15.0
"""Age of a process's last heartbeat from which it may be dead: two heartbeats were missed."""

_HEARTBEAT = sql("""
    insert into processes as p (
        id, kind, name, version, started_at, heartbeat_at, concurrency, open_turns, jobs_in_hand,
        is_claiming, is_listening)
    values (:id, :kind, :name, :version, now() - make_interval(secs => :up_seconds), now(), :concurrency, :open_turns,
        :jobs_in_hand, :is_claiming, :is_listening)
    on conflict (id) do update set heartbeat_at = excluded.heartbeat_at, concurrency = excluded.concurrency,
        open_turns = excluded.open_turns, jobs_in_hand = excluded.jobs_in_hand, is_claiming = excluded.is_claiming,
        is_listening = excluded.is_listening
""")
_FORGET = sql("delete from processes where id = :id")
_COUNT_CLAIMING = sql("""
    select count(*) as claiming from processes p
    where p.is_claiming and p.heartbeat_at > now() - make_interval(secs => :silent_seconds)
""")


class ProcessRepository:
    """Storage of the heartbeats of processes, and the number of processes that claim runs."""

    def __init__(self, transactions: Transactions) -> None:
        """Use `transactions`, which should not share the requests' pool: a busy process must not look dead."""
        self._transactions = transactions

    async def heartbeat(self, process: Process, state: ProcessState, *, up_seconds: float) -> None:
        """Store a heartbeat: that the process is alive, and its current work."""
        await self._transactions.fetch(
            _HEARTBEAT,
            id=process.id,
            kind=process.kind.value,
            name=process.name,
            version=process.version,
            up_seconds=up_seconds,
            **asdict(state),
        )

    async def forget(self, process_id: ProcessId) -> None:
        """Delete the row of a process that ends."""
        await self._transactions.fetch(_FORGET, id=process_id)

    async def count_claiming(self) -> int:
        """Return how many processes claim runs now, by their heartbeats of the last SILENT_SECONDS."""
        rows = await self._transactions.fetch(_COUNT_CLAIMING, silent_seconds=SILENT_SECONDS)
        return int(rows[0]["claiming"])
