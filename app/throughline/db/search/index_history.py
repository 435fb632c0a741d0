"""Indexing of messages for the search. Turns never wait for it.

A block is a row of a session's messages that are indexed together.
Reading, tokenizing and writing are separate steps, and no connection is held during tokenizing. Each step takes the
messages of many sessions at once.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TypeVar

from throughline.db.connection.transactions import Transactions
from throughline.db.jobs.kinds import index_job
from throughline.db.jobs.queue import is_under_way
from throughline.db.search.analyzer import MAX_TEXT_CHARACTERS, Analyzer
from throughline.db.search.entries import BlockEntries, IndexedMessage, LiveEntries, live_entries_of
from throughline.db.search.unindexed import (
    BLOCK_CHARACTERS,
    BLOCK_MESSAGES,
    LIVE_CHARACTERS,
    LIVE_MESSAGES,
    Limits,
    Waiting,
    find_due,
    find_waiting,
    read_messages,
    unmark_complete,
)
from throughline.db.search.write_blocks import Block, RedactedMeanwhile, term_rows, write_blocks
from throughline.domain.ids import SessionId, UserId
from throughline.execution.compute_threads import run_off_loop_if_large

LARGE_CHARACTERS = 4_000
"""Text length from which tokenizing runs in a thread: 1,000 characters of unseen words take 5 ms."""

BATCH_MESSAGES = 2_048
"""Most messages read at once for blocks of several sessions."""

_OF_BLOCKS = Limits(BLOCK_MESSAGES, BATCH_MESSAGES, BLOCK_CHARACTERS, at_least=1)
_LIVE = Limits(LIVE_MESSAGES, LIVE_MESSAGES, LIVE_CHARACTERS)
T = TypeVar("T")


class HistoryIndex:
    """The writing side of the search index: it finds and reads unindexed messages and stores their terms."""

    def __init__(self, transactions: Transactions, analyzer: Analyzer) -> None:
        """Use `transactions`, and tokenize with `analyzer`."""
        self._transactions = transactions
        self.analyzer = analyzer

    async def waiting(self, owner_id: UserId, session_id: SessionId | None) -> tuple[Waiting, ...]:
        """Return the owner's sessions with unindexed messages; with a `session_id` only this session, if it has any."""
        return await find_waiting(self._transactions, owner_id, session_id, self.analyzer.name)

    async def due(self, owner_id: UserId) -> tuple[Waiting, ...]:
        """Return the owner's sessions that are due for indexing, by the rules of `find_due`."""
        return await find_due(self._transactions, owner_id, self.analyzer.name)

    async def unmark_complete(self, owner_id: UserId) -> bool:
        """Clear `unindexed_since` of the owner's sessions that are indexed completely.

        One call clears a limited number; return whether there may be more.
        """
        return await unmark_complete(self._transactions, owner_id, self.analyzer.name)

    async def has_job_under_way(self, owner_id: UserId) -> bool:
        """Whether a worker runs the owner's indexing job."""
        return await is_under_way(self._transactions, index_job(owner_id))

    async def index_blocks(self, sessions: Sequence[SessionId]) -> int:
        """Index the next block of each session, of as many as the limits allow, those with short texts first.

        Returns the number of indexed messages. It is 0 if all are indexed, or if no block could be stored because of a
        redaction or another process.
        """
        blocks: dict[SessionId, Block] = {}
        messages: list[IndexedMessage] = []
        for message, redactions in await read_messages(self._transactions, sessions, _OF_BLOCKS, self.analyzer.name):
            known = blocks.get(message.session_id)
            entries = BlockEntries(message.position) if known is None else known.entries
            blocks[message.session_id] = Block(message.session_id, message.position, redactions, entries)
            messages.append(message)
        for piece in _pieces(messages):
            await self._cut(piece, partial(self._add, blocks, piece))
        stored = await self._write(list(blocks.values()), messages)
        return sum(message.session_id in stored for message in messages)

    async def read_unindexed(self, waiting: Sequence[Waiting]) -> tuple[IndexedMessage, ...]:
        """Return up to LIVE_MESSAGES unindexed messages, for a search to tokenize itself, short sessions first.

        `waiting` are the sessions to read from.
        """
        sessions: list[SessionId] = []
        messages = 0
        for found in sorted(waiting, key=lambda found: found.messages):
            messages += found.messages
            if sessions and messages > LIVE_MESSAGES:
                break
            sessions.append(found.session_id)
        if not sessions:
            return ()
        read = await read_messages(self._transactions, sessions, _LIVE, self.analyzer.name)
        return tuple(message for message, _ in read)

    async def live_entries(self, messages: Sequence[IndexedMessage], wanted: Collection[str]) -> LiveEntries:
        """Return the messages' index entries for the wanted terms; long texts are tokenized in a thread."""
        return await self._cut(messages, lambda: live_entries_of(self.analyzer, messages, wanted))

    def _add(self, blocks: dict[SessionId, Block], messages: Sequence[IndexedMessage]) -> None:
        for message in messages:
            blocks[message.session_id].entries.add(self.analyzer, message)

    async def _cut(self, messages: Sequence[IndexedMessage], work: Callable[[], T]) -> T:
        characters = sum(len(message.text) for message in messages)
        return await run_off_loop_if_large(characters, work, large=LARGE_CHARACTERS)

    async def _write(self, blocks: Sequence[Block], messages: Sequence[IndexedMessage]) -> Collection[SessionId]:
        """Store the blocks, except those whose sessions had a redaction since they were read.

        Return the sessions whose blocks are stored.
        """
        while blocks:
            terms = await self._cut(messages, partial(term_rows, blocks))
            write = partial(write_blocks, blocks=blocks, terms=terms, analyzer=self.analyzer.name)
            try:
                return await self._transactions.run(write)
            except RedactedMeanwhile as error:
                blocks = [block for block in blocks if block.session_id not in error.sessions]
        return ()


def _pieces(messages: Sequence[IndexedMessage]) -> Iterator[Sequence[IndexedMessage]]:
    """Yield the messages in groups of limited length, so that other work of the owner can run in between."""
    start = characters = 0
    for number, message in enumerate(messages):
        characters += min(len(message.text), MAX_TEXT_CHARACTERS)
        if characters > MAX_TEXT_CHARACTERS and number > start:
            yield messages[start:number]
            start, characters = number, min(len(message.text), MAX_TEXT_CHARACTERS)
    yield messages[start:]
