"""A commit whose answer is lost: done or not done is found out by key, and nothing is there twice."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fakes.conversations import CLAIMER, Conversation, is_held, open_conversation, pulse_of, user_message
from fakes.database_wire import DatabaseWire, database_wire
from fakes.raw_sql import run_sql
from throughline.db.database import Database, DatabaseConfig
from throughline.db.job_queue import Job, JobClaim
from throughline.db.slack.outbox import DeliveryClaim
from throughline.domain.errors import DatabaseUnavailable
from throughline.domain.run import OnBusy, RunStatus

NOTICE = """
    insert into slack_deliveries (id, team_id, channel_id, thread_ts, message_ts, reader_id, reader_team_id, notice)
    values (gen_random_uuid(), 'T', 'C', $1, $1, 'U', 'T', 'hello')
"""


@pytest.fixture
async def between(database_url: str) -> AsyncIterator[DatabaseWire]:
    async with database_wire(database_url) as wire:
        yield wire


@pytest.fixture
async def conversation(between: DatabaseWire) -> AsyncIterator[Conversation]:
    database = await Database.open(DatabaseConfig(url=between.url, pool_size=2))
    yield await open_conversation(database)
    await database.close()


async def number_of(url: str, table: str) -> object:
    return (await run_sql(url, f"select count(*) from {table}"))[0][0]


@pytest.mark.parametrize("key", [None, "k1"])
async def test_a_message_whose_acceptance_was_not_heard_is_there_once_and_claimed(
    conversation: Conversation, between: DatabaseWire, database_url: str, key: str | None
) -> None:
    between.cut_next()

    submitted = await conversation.submit("Hello", key=key, fingerprint="f", claimer=CLAIMER)

    assert between.cuts == 1
    assert not submitted.replayed
    assert submitted.claimed is not None
    assert await number_of(database_url, "runs") == 1


async def test_a_message_that_interrupts_asks_to_stop_though_nobody_heard_the_answer(
    conversation: Conversation, between: DatabaseWire, database_url: str
) -> None:
    first = await conversation.start()
    between.cut_next()

    await conversation.submit("stop", on_busy=OnBusy.INTERRUPT)

    assert (await pulse_of(conversation.database, first.lease)).is_cancel_requested
    assert await number_of(database_url, "runs") == 2


async def test_an_end_that_was_not_heard_is_the_end(
    conversation: Conversation, between: DatabaseWire, database_url: str
) -> None:
    claimed = await conversation.start()
    await conversation.database.messages.append_message(claimed.lease, "user", user_message("Hello"))
    between.cut_next()

    run = await conversation.end(claimed.lease, "the answer")

    assert between.cuts == 1
    assert run.status is RunStatus.SUCCEEDED
    assert run.message_id == (await conversation.messages())[-1].id
    assert await number_of(database_url, "messages") == 2


async def test_a_claim_that_was_not_heard_is_made_once(
    conversation: Conversation, between: DatabaseWire, database_url: str
) -> None:
    run = (await conversation.start()).run
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")
    between.cut_next()

    claimed = await conversation.database.runs.claim_next(CLAIMER)

    assert between.cuts == 1
    assert claimed is not None
    assert (claimed.run.id, claimed.run.attempt) == (run.id, 2)
    assert await is_held(conversation.database, claimed.lease)


async def test_a_retried_claim_does_not_pass_over_its_own_run(
    conversation: Conversation, between: DatabaseWire, database_url: str
) -> None:
    await conversation.start()
    await run_sql(database_url, "update runs set lease_until = now() - interval '1 second'")
    between.cut_next()

    claimed = await conversation.database.runs.claim_next(replace(CLAIMER, skipped_attempt=2))

    assert between.cuts == 1
    assert claimed is not None


async def test_a_job_whose_claim_was_not_heard_is_claimed(conversation: Conversation, between: DatabaseWire) -> None:
    jobs = conversation.database.jobs
    await jobs.enqueue(Job("any", "1"))
    between.cut_next()

    taken = await jobs.claim(JobClaim("worker", lease_seconds=30, kinds=["any"]))

    assert between.cuts == 1
    assert taken is not None


async def test_deliveries_whose_claim_was_not_heard_are_claimed_once_each(
    conversation: Conversation, between: DatabaseWire, database_url: str
) -> None:
    outbox = conversation.database.open_slack("assistant").outbox
    for thread in ("1", "2"):
        await run_sql(database_url, NOTICE, thread)
    between.cut_next()

    deliveries = await outbox.claim(DeliveryClaim("worker", limit=9, lease_seconds=30))

    assert between.cuts == 1
    assert [delivery.thread_ts for delivery in deliveries] == ["1", "2"]
    assert len(await outbox.renew([delivery.lease for delivery in deliveries], 30)) == 2


async def test_a_summary_whose_adoption_was_not_heard_is_adopted_once(
    conversation: Conversation, between: DatabaseWire
) -> None:
    messages = await conversation.say("one", "two", "three", "four")
    adoption = await conversation.adoption(messages[1])
    between.cut_next()

    session = await conversation.database.summaries.adopt_summary(adoption)

    assert between.cuts == 1
    assert (session.summary_version, session.summary_through_position) == (1, 2)


async def test_a_database_that_never_answers_is_told_so_in_the_end(
    conversation: Conversation, between: DatabaseWire, database_url: str
) -> None:
    between.cut_next(100)

    with pytest.raises(DatabaseUnavailable):
        await conversation.submit("Hello")

    between.cut_next(0)
    assert await number_of(database_url, "runs") == 1
