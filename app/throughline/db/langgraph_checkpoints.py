"""Threads that LangGraph's savers for PostgreSQL wrote, read for an import, each in a read-only transaction.

The newest checkpoint of a thread has a version of each channel; `checkpoint_blobs` has the values. A shallow saver
keeps one checkpoint and no versions. A DeltaChannel stores its value now and then, and otherwise only what was written
to it: then the writes since the last stored value are applied again.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # ships no types

from throughline.db.connection.address import parse_address
from throughline.db.connection.pooler import connected
from throughline.db.langgraph_values import Named, Undecodable, decode, read_message, removed_id
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import DatabaseUnusable, InvalidInput
from throughline.ports.stored_threads import LeftOut, StoredThread

MAX_CHANNEL_BYTES = 256_000_000
"""Most bytes of a thread's channel that are read; a session may have far fewer."""

ANSWER_SECONDS = 120.0
PAGE_THREADS = 500
ADDRESS = "The URL"
INTERNAL = ("__", "branch:", "start:")
"""Beginnings of the names of channels in which LangGraph keeps its own state."""

_TABLES = """
    select to_regclass('checkpoints') is not null and to_regclass('checkpoint_blobs') is not null
            and to_regclass('checkpoint_writes') is not null as has_tables,
        exists (select from pg_attribute where attrelid = to_regclass('checkpoint_blobs') and attname = 'version'
            and not attisdropped) as has_versions
"""
_IDS = """
    select distinct thread_id from checkpoints where checkpoint_ns = '' and ($1::text is null or thread_id > $1)
    order by thread_id limit $2
"""
_NEWEST = """
    select checkpoint ->> 'id' as id, checkpoint ->> 'ts' as written_at,
        checkpoint -> 'channel_versions' ->> $2 as version,
        metadata ? 'counters_since_delta_snapshot' or metadata ? 'delta_writes_versioned' as has_deltas,
        array(select jsonb_object_keys(checkpoint -> 'versions_seen')) as nodes
    from checkpoints where thread_id = $1 and checkpoint_ns = ''
"""
_NEWEST_OF_MANY = f"{_NEWEST} order by checkpoint_id desc limit 1"
_VALUE = """
    select type, octet_length(blob) as size, case when octet_length(blob) <= $3 then blob end as blob
    from checkpoint_blobs where thread_id = $1 and checkpoint_ns = '' and channel = $2 and type <> 'empty'
"""
_VALUE_OF_VERSION = f"{_VALUE} and version = $4"
_CHAIN = """
    with recursive chain as (
        select checkpoint_id, parent_checkpoint_id, checkpoint -> 'channel_versions' ->> $2 as version, 0 as depth
        from checkpoints where thread_id = $1 and checkpoint_ns = '' and checkpoint_id = $3
        union all
        select c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint -> 'channel_versions' ->> $2, chain.depth + 1
        from chain join checkpoints c on c.thread_id = $1 and c.checkpoint_ns = ''
            and c.checkpoint_id = chain.parent_checkpoint_id and c.checkpoint_id < chain.checkpoint_id
        where not exists (select from checkpoint_blobs b where b.thread_id = $1 and b.checkpoint_ns = ''
            and b.channel = $2 and b.version = chain.version and b.type <> 'empty')
    )
"""
"""The checkpoints from the newest one back to the last that has a stored value of the channel."""

_CHAIN_WRITES = """
    join checkpoint_writes w on w.thread_id = $1 and w.checkpoint_ns = '' and w.checkpoint_id = chain.checkpoint_id
    where w.channel = $2 and chain.depth > 0
"""
_IN_ORDER = 'order by chain.depth desc, w.task_path collate "C", w.task_id collate "C", w.idx'
_SEED_VERSION, _WRITES_SIZE, _WRITES = (
    "".join((_CHAIN, *parts))
    for parts in (
        ("select version from chain order by depth desc limit 1",),
        ("select coalesce(sum(octet_length(w.blob)), 0) as size from chain", _CHAIN_WRITES),
        ("select w.type, w.blob from chain", _CHAIN_WRITES, _IN_ORDER),
    )
)
_REST = """
    select (select count(distinct checkpoint_ns) from checkpoints where thread_id = $1 and checkpoint_ns <> '')
            as subgraphs,
        (select count(*) from checkpoint_writes where thread_id = $1 and checkpoint_ns = '' and checkpoint_id = $2
            and channel = $3) as unapplied,
        (select coalesce(array_agg(distinct channel order by channel), '{}') from checkpoint_blobs
            where thread_id = $1 and checkpoint_ns = '' and channel <> $3 and type <> 'empty') as channels
"""


@asynccontextmanager
async def open_threads(url: str, channel: str) -> AsyncGenerator["CheckpointThreads"]:
    """Yield the threads in the database at `url`, with the messages of the channel. Only reads.

    Raises DatabaseUnusable and DatabaseUnavailable.
    """
    async with connected(parse_address(url, ADDRESS), answer_seconds=ANSWER_SECONDS) as connection:
        tables = await connection.fetchrow(_TABLES)
        if not tables["has_tables"]:
            raise DatabaseUnusable(
                "The database has no tables `checkpoints`, `checkpoint_blobs` and `checkpoint_writes` of LangGraph in "
                "its search path. Check the database's name in the URL."
            )
        yield CheckpointThreads(connection, channel, has_versions=tables["has_versions"])


@dataclass(frozen=True, slots=True)
class _Newest:
    id: str
    written_at: str
    version: str | None
    has_deltas: bool
    nodes: tuple[str, ...]


class CheckpointThreads:
    """Threads in a database with LangGraph's tables. One is read at a time."""

    def __init__(self, connection: asyncpg.Connection, channel: str, *, has_versions: bool) -> None:
        """Read over `connection`. Without `has_versions` the tables are those of a shallow saver."""
        self._connection = connection
        self._channel = channel
        self._has_versions = has_versions

    async def ids(self) -> AsyncIterator[str]:
        """Yield the ids of all threads, in order."""
        last: str | None = None
        while rows := await self._fetch(_IDS, last, PAGE_THREADS):
            for row in rows:
                yield row["thread_id"]
            last = rows[-1]["thread_id"]

    async def read(self, thread_id: str) -> StoredThread:
        """Return the newest state of a thread. Raises InvalidInput if its messages cannot be decoded."""
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            newest = await self._newest(thread_id)
            try:
                value = await self._value(thread_id, newest)
                messages, left_out = _read_messages(value)
            except Undecodable as error:
                raise InvalidInput(f"The channel `{self._channel}` cannot be read: {error}") from None
            rest = await self._rest(thread_id, newest)
        return StoredThread(thread_id, newest.id, newest.written_at, tuple(messages), (*left_out, *rest))

    async def _newest(self, thread_id: str) -> _Newest:
        rows = await self._fetch(_NEWEST_OF_MANY if self._has_versions else _NEWEST, thread_id, self._channel)
        if not rows:
            raise InvalidInput("The thread is gone.")
        row = rows[0]
        return _Newest(
            id=row["id"] or "",
            written_at=row["written_at"] or "",
            version=row["version"],
            has_deltas=bool(row["has_deltas"]),
            nodes=tuple(row["nodes"]),
        )

    async def _value(self, thread_id: str, newest: _Newest) -> object:
        """Return the decoded value of the channel, an empty list if it has none."""
        if newest.version is None:
            return []
        stored = await self._stored(thread_id, newest.version)
        if stored is None and newest.has_deltas and self._has_versions:
            return await self._replayed(thread_id, newest)
        return [] if stored is None else stored

    async def _stored(self, thread_id: str, version: str | None) -> object:
        """Return the decoded value that is stored under the version, None if there is none."""
        limits = (thread_id, self._channel, MAX_CHANNEL_BYTES)
        if self._has_versions:
            rows = await self._fetch(_VALUE_OF_VERSION, *limits, version)
        else:
            rows = await self._fetch(_VALUE, *limits)
        if not rows:
            return None
        _check_size(rows[0]["size"] or 0)
        return decode(rows[0]["type"], rows[0]["blob"] or b"")

    async def _replayed(self, thread_id: str, newest: _Newest) -> object:
        """Return the value of a DeltaChannel: the last stored one, with the later writes applied."""
        where = (thread_id, self._channel, newest.id)
        _check_size((await self._fetch(_WRITES_SIZE, *where))[0]["size"])
        seed = await self._stored(thread_id, (await self._fetch(_SEED_VERSION, *where))[0]["version"])
        writes = [decode(row["type"], row["blob"]) for row in await self._fetch(_WRITES, *where)]
        return apply_writes([] if seed is None else seed, writes)

    async def _rest(self, thread_id: str, newest: _Newest) -> list[LeftOut]:
        row = (await self._fetch(_REST, thread_id, newest.id, self._channel))[0]
        # Earlier versions of LangGraph have a channel for each node, with its name.
        named = [name for name in row["channels"] if not name.startswith(INTERNAL) and name not in newest.nodes]
        found = [LeftOut(f"values of the channel `{name}`") for name in named]
        found += [LeftOut("states of subgraphs")] * row["subgraphs"]
        return found + [LeftOut("writes that no step had taken up yet")] * row["unapplied"]

    async def _fetch(self, statement: str, *arguments: object) -> Sequence[asyncpg.Record]:
        rows: Sequence[asyncpg.Record] = await self._connection.fetch(statement, *arguments)
        return rows


def _check_size(size: int) -> None:
    if size > MAX_CHANNEL_BYTES:
        raise Undecodable(f"it has {size:,} bytes, and at most {MAX_CHANNEL_BYTES:,} are read.")


def _read_messages(value: object) -> tuple[list[JsonObject], list[LeftOut]]:
    """Return the messages of a channel's value, and which of its items are none."""
    if not isinstance(value, list):
        raise Undecodable("it is no list of messages. Name the channel of the messages with --channel.")
    messages: list[JsonObject] = []
    left_out: list[LeftOut] = []
    for number, item in enumerate(value, start=1):
        message = read_message(item)
        if message is None:
            left_out.append(LeftOut(f"items that are no messages of LangChain ({_kind(item)})", f"item {number}"))
        else:
            messages.append(message)
    return messages, left_out


def _kind(item: object) -> str:
    return f"{item.module}.{item.name}" if isinstance(item, Named) else type(item).__name__


def apply_writes(seed: object, writes: Sequence[object]) -> list[object]:
    """Return a channel's messages after the writes, as LangGraph's reducer of a DeltaChannel does it.

    A message replaces one with the same id, a `RemoveMessage` removes it, and an `Overwrite` replaces all.
    """
    found: dict[object, object] = {}
    for item in _items(seed):
        _apply(found, item)
    for write in writes:
        is_overwrite, value = _overwrite(write)
        if is_overwrite:
            found = {}
        for item in _items(value):
            _apply(found, item)
    return list(found.values())


def _apply(found: dict[object, object], item: object) -> None:
    gone = removed_id(item)
    if gone is not None:
        found.pop(gone, None)
        return
    message = read_message(item)
    known = None if message is None else message.get("id")
    found[known if isinstance(known, str) else object()] = item


def _items(value: object) -> Iterator[object]:
    yield from value if isinstance(value, list) else () if value is None else (value,)


def _overwrite(write: object) -> tuple[bool, object]:
    """Return whether the write is an `Overwrite`, in one of the forms that LangGraph knows, and its value."""
    match write:
        case Named("langgraph.types", "Overwrite", {"value": value}):
            return True, value
        case {"__overwrite__": value, **rest} if not rest:
            return True, value
        case {"type": "__overwrite__", "value": value}:
            return True, value
        case _:
            return False, write
