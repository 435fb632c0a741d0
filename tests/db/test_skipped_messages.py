"""What a user said is kept, also where its run was cancelled before anybody read it: where its turn would have been."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from fakes.conversations import (
    BEHIND_ALL,
    CLAIMER,
    Conversation,
    answer_message,
    is_loaded_whole,
    open_conversation,
    user_message,
)
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Row, Statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs.cancel import withdraw
from throughline.db.runs.finish import PORTION, PORTION_BYTES, Ending, finish
from throughline.domain.errors import QueueFull
from throughline.domain.message import Message, NewMessage, text_of
from throughline.domain.run import Caps, Outcome, RunError, RunStatus

CAPS = Caps()


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [text_of(message.content) for message in messages]


def answered(answer: NewMessage) -> Outcome:
    return Outcome(RunStatus.SUCCEEDED, answer=answer)


async def cancel_waiting(conversation: Conversation, *said: str) -> None:
    runs = [(await conversation.submit(text)).run for text in said]
    for run in runs:
        cancelled = await conversation.database.runs.request_cancel(conversation.owner_id, run.id)
        assert cancelled.status is RunStatus.CANCELLED


async def test_a_message_that_no_worker_took_is_kept_when_it_is_cancelled(conversation: Conversation) -> None:
    await cancel_waiting(conversation, "anybody there?")

    (kept,) = await conversation.messages()
    assert (text_of(kept.content), kept.role.value, kept.position) == ("anybody there?", "user", 1)


async def test_a_message_cancelled_behind_a_running_turn_comes_to_stand_behind_that_turn(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start("first")
    await conversation.database.messages.append_message(claimed.lease, "user", user_message("first"))
    await cancel_waiting(conversation, "second", "third")
    while_it_runs = texts(await conversation.messages())

    await conversation.end(claimed.lease, "answer")
    await conversation.say("fourth")

    assert while_it_runs == ["first"]
    assert texts(await conversation.messages()) == ["first", "answer", "second", "third", "fourth"]


async def test_a_message_cancelled_between_two_that_wait_keeps_its_place(conversation: Conversation) -> None:
    claimed = await conversation.start("first")
    runs = [(await conversation.submit(text)).run for text in ("second", "third")]
    last = (await conversation.submit("fourth")).run
    await conversation.database.runs.request_cancel(conversation.owner_id, runs[1].id)
    await conversation.end(claimed.lease, "one")

    following = await conversation.database.runs.claim_next(CLAIMER)
    assert following is not None
    await conversation.database.messages.append_message(following.lease, "user", user_message("second"))
    before_its_end = texts(await conversation.messages())
    await conversation.end(following.lease, "two")
    await conversation.database.runs.request_cancel(conversation.owner_id, last.id)

    assert before_its_end == ["one", "second"]
    assert texts(await conversation.messages()) == ["one", "second", "two", "third", "fourth"]


async def test_cancelling_while_the_turn_before_ends_loses_no_message(conversation: Conversation) -> None:
    for _ in range(20):
        claimed = await conversation.start("first")
        waiting = (await conversation.submit("second")).run
        await asyncio.gather(
            conversation.end(claimed.lease, "answer"),
            conversation.database.runs.request_cancel(conversation.owner_id, waiting.id),
        )

    assert texts(await conversation.messages()) == ["answer", "second"] * 20


async def test_cancelling_twice_keeps_the_message_once(conversation: Conversation) -> None:
    run = (await conversation.submit("once")).run

    await asyncio.gather(*(conversation.database.runs.request_cancel(conversation.owner_id, run.id) for _ in range(5)))

    assert texts(await conversation.messages()) == ["once"]


async def test_a_run_whose_answer_was_stored_is_not_touched_by_messages_that_are_due(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start("first")
    await cancel_waiting(conversation, "second")
    answer = answer_message("answer")

    run = await conversation.database.runs.finish(claimed.lease, answered(answer), (), BEHIND_ALL)

    stored = await conversation.messages()
    assert run.message_id == stored[0].id
    assert (await conversation.reload()).message_count == len(stored) == 2


@pytest.fixture
async def transactions(database_url: str) -> AsyncGenerator[Transactions]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=HANG_SECONDS))
    yield Transactions(pool)
    await pool.close()


class CountedStatements:
    """Hands statements on, counts them, and measures the largest of their values."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self.number = 0
        self.largest = 0

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        self.number += 1
        self.largest = max(self.largest, *(len(str(value)) for value in parameters.values()))
        return await self._statements.fetch(statement, **parameters)


async def test_however_many_messages_are_due_a_few_statements_append_them(
    database_url: str, transactions: Transactions
) -> None:
    many, caps = 2 * PORTION + 1, Caps(queued_per_session=1_000)
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    conversation = await open_conversation(database)
    claimed = await conversation.start("first")
    await cancel_waiting(conversation, *(f"message {number}" for number in range(many)))

    async def end(tx: Statements) -> int:
        counted = CountedStatements(tx)
        await finish(counted, Ending(claimed.lease, answered(answer_message("answer")), (), BEHIND_ALL))
        return counted.number

    statements = await transactions.run(end)

    stored, session = await conversation.messages(), await conversation.reload()
    assert statements <= 11
    assert texts(stored) == ["answer", *(f"message {number}" for number in range(many))]
    assert [message.position for message in stored] == list(range(1, many + 2))
    assert session.message_count == many + 1
    counts = "select skipped_run_count, message_tokens from sessions"
    assert await run_sql(database_url, counts) == [(0, sum(message.token_count for message in stored))]
    await database.close()


async def test_a_message_deleted_before_it_was_read_lets_those_behind_it_take_their_place(
    conversation: Conversation, transactions: Transactions
) -> None:
    first = (await conversation.submit("first")).run
    await cancel_waiting(conversation, "second")

    await transactions.run(lambda tx: withdraw(tx, conversation.owner_id, first.id))

    assert texts(await conversation.messages()) == ["second"]


async def test_kept_messages_have_a_size_so_that_loading_can_leave_them_out(conversation: Conversation) -> None:
    for _ in range(4):
        await cancel_waiting(conversation, *["word " * 2_000] * 10)
    claimed = await conversation.start()

    loaded = await conversation.database.messages.load_context(conversation.session.id, claimed.run.id, 3_000)

    assert len(await conversation.messages()) == 40
    assert len(loaded.history) < 40
    assert not is_loaded_whole(loaded)


async def test_messages_that_wait_for_their_place_count_as_waiting(conversation: Conversation) -> None:
    await conversation.start()
    for number in range(CAPS.queued_per_session):
        await cancel_waiting(conversation, f"never mind {number}")

    with pytest.raises(QueueFull):
        await conversation.submit("one more")


async def test_a_run_with_its_message_stored_is_not_counted_when_cancelled_in_the_line(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start("first")
    await conversation.database.messages.append_message(claimed.lease, "user", user_message("first"))
    await conversation.database.runs.give_back(claimed.lease)

    await conversation.database.runs.request_cancel(conversation.owner_id, claimed.run.id)

    assert texts(await conversation.messages()) == ["first"]
    assert await run_sql(database_url, "select skipped_run_count from sessions") == [(0,)]


async def test_a_session_whose_turn_could_only_be_failed_takes_messages_again(
    conversation: Conversation,
) -> None:
    claimed = await conversation.start("first")
    await cancel_waiting(conversation, *(f"never mind {n}" for n in range(CAPS.queued_per_session)))
    await conversation.database.runs.fail(claimed.lease, RunError("internal_error", "not stored"))

    submitted = await conversation.submit("hello again")

    assert not submitted.run.status.is_final
    assert texts(await conversation.messages()) == [f"never mind {n}" for n in range(CAPS.queued_per_session)]


async def test_messages_that_are_due_count_as_waiting_where_one_more_is_refused(conversation: Conversation) -> None:
    await conversation.start("first")
    await cancel_waiting(conversation, *(f"never mind {n}" for n in range(CAPS.queued_per_session)))

    with pytest.raises(QueueFull) as refused:
        await conversation.submit("one more")

    assert refused.value.cap == "max_queued_per_session"


async def test_long_messages_that_are_due_are_appended_a_few_megabytes_at_a_time(
    conversation: Conversation, transactions: Transactions
) -> None:
    claimed = await conversation.start("first")
    said = [letter * (PORTION_BYTES * 2 // 3) for letter in "abcd"]
    await cancel_waiting(conversation, *said)
    largest = 0

    async def end(tx: Statements) -> None:
        nonlocal largest
        counted = CountedStatements(tx)
        await finish(counted, Ending(claimed.lease, answered(answer_message("answer")), (), BEHIND_ALL))
        largest = counted.largest

    await transactions.run(end)

    assert texts(await conversation.messages()) == ["answer", *said]
    assert largest < 2 * PORTION_BYTES
