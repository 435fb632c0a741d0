"""What happened in an ended run, made up from its stored messages for readers who come after its events are gone."""

from collections.abc import Iterator

from throughline.db.connection.transactions import Transactions
from throughline.db.statements.rows import MESSAGE_COLUMNS, PINNED, message_from
from throughline.db.statements.sql import sql
from throughline.domain.events import AnswerReset, Event, MessageCompleted, RunEnded, RunEvent, ToolAnswered, ToolCalled
from throughline.domain.message import Message, Role
from throughline.domain.run import Run

STAND_IN_END = 999_999_999
"""The id of a made-up end: whoever comes back with it has seen all there is."""

_MESSAGES = sql(
    """
    select {message_columns}, {pinned} from messages m
    where m.run_id = :run_id and m.role <> 'user' order by m.position
""",
    message_columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)


class RunReplay:
    """Makes up the events of ended runs."""

    def __init__(self, transactions: Transactions) -> None:
        """Read through `transactions`."""
        self._transactions = transactions

    async def ending(self, run: Run) -> RunEnded:
        """Return the last event of an ended run."""
        return _ended(run, await self._messages(run))

    async def events(self, run: Run) -> tuple[RunEvent, ...]:
        """Return `reset`, what the stored messages tell, and the last event of an ended run.

        Their ids end with STAND_IN_END and stand for nothing stored: a reader that goes on behind one of them, but for
        the last, gets all of it again.
        """
        messages = await self._messages(run)
        told = [AnswerReset(run.attempt), *_steps(messages), _ended(run, messages)]
        first = STAND_IN_END - len(told) + 1
        return tuple(RunEvent(run.id, first + index, event) for index, event in enumerate(told))

    async def _messages(self, run: Run) -> tuple[Message, ...]:
        rows = await self._transactions.fetch(_MESSAGES, run_id=run.id, session_id=run.session_id)
        return tuple(message_from(row) for row in rows)


def _steps(messages: tuple[Message, ...]) -> Iterator[Event]:
    for message in messages:
        if message.role is Role.TOOL:
            yield ToolAnswered(message)
            continue
        yield MessageCompleted(message)
        for call in message.tool_calls:
            yield ToolCalled(call)


def _ended(run: Run, messages: tuple[Message, ...]) -> RunEnded:
    return RunEnded(run, next((message for message in messages if message.id == run.message_id), None))
