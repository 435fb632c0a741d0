"""What happened in an ended run, made up from its stored messages for readers who come after its events are gone."""

from collections.abc import Iterator

from app.db.rows import MESSAGE_COLUMNS, PINNED, message_from
from app.db.sql import sql
from app.db.transactions import Transactions
from app.domain.events import EventType, RunEvent
from app.domain.json_types import JsonObject
from app.domain.message import Message, Role, text_of
from app.domain.run import Run, RunError, RunStatus
from app.domain.wire import message_json, run_json, tool_call_json

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
_UNKNOWN_ERROR = RunError("internal_error", "The run failed. The message is kept; send it again.")


class RunReplay:
    """Makes up the events of ended runs."""

    def __init__(self, transactions: Transactions) -> None:
        """Read through `transactions`."""
        self._transactions = transactions

    async def ending(self, run: Run) -> tuple[EventType, JsonObject]:
        """Return type and data of the last event of an ended run."""
        return _ending(run, await self._messages(run))

    async def events(self, run: Run) -> tuple[RunEvent, ...]:
        """Return `reset`, what the stored messages tell, and the last event of an ended run.

        Their ids end with STAND_IN_END and stand for nothing stored: a reader that goes on behind one of them, but for
        the last, gets all of it again.
        """
        messages = await self._messages(run)
        told = [(EventType.RESET, {"attempt": run.attempt}), *_steps(messages), _ending(run, messages)]
        first = STAND_IN_END - len(told) + 1
        return tuple(RunEvent(run.id, first + index, kind, data) for index, (kind, data) in enumerate(told))

    async def _messages(self, run: Run) -> tuple[Message, ...]:
        rows = await self._transactions.fetch(_MESSAGES, run_id=run.id, session_id=run.session_id)
        return tuple(message_from(row) for row in rows)


def _steps(messages: tuple[Message, ...]) -> Iterator[tuple[EventType, JsonObject]]:
    for message in messages:
        if message.role is Role.TOOL:
            yield EventType.TOOL_RESULT, _result_json(message)
            continue
        yield EventType.MESSAGE_COMPLETED, {"message": message_json(message)}
        for call in message.tool_calls:
            yield EventType.TOOL_CALL, tool_call_json(call)


def _result_json(message: Message) -> JsonObject:
    return {
        "id": message.tool_call_id,
        "name": message.name,
        "content": text_of(message.content),
        "is_error": bool(message.metadata.get("is_error", False)),
    }


def _ending(run: Run, messages: tuple[Message, ...]) -> tuple[EventType, JsonObject]:
    answer = next((message for message in messages if message.id == run.message_id), None)
    shown = None if answer is None else message_json(answer)
    match run.status:
        case RunStatus.SUCCEEDED:
            context = None if run.context is None else dict(run.context)
            return EventType.RUN_COMPLETED, {"run": run_json(run), "message": shown, "context": context}
        case RunStatus.CANCELLED:
            return EventType.RUN_CANCELLED, {"run": run_json(run), "message": shown}
        case _:
            error = run.error or _UNKNOWN_ERROR
            data: JsonObject = {"run": run_json(run), "error": {"type": error.type, "detail": error.detail}}
            return EventType.RUN_FAILED, data
