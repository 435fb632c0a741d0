"""Caps per owner: how many messages may wait in all sessions of a user, and how many turns run at once."""

from collections.abc import AsyncGenerator

import pytest

from fakes.conversations import CLAIMER, Conversation, open_conversation
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import OwnerQueueFull
from throughline.domain.run import Caps, RunStatus


@pytest.fixture
async def capped(database_url: str) -> AsyncGenerator[Database]:
    """Three messages of an owner may wait, and two turns run."""
    caps = Caps(queued_per_session=2, queued_per_owner=3, running_per_owner=2)
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    yield opened
    await opened.close()


async def sessions_of(database: Database, owner: str, number: int) -> list[Conversation]:
    return [await open_conversation(database, owner) for _ in range(number)]


async def test_one_message_too_many_is_refused_with_cap_and_number_and_not_stored(
    capped: Database, database_url: str
) -> None:
    *full, one_more = await sessions_of(capped, "anna", 4)
    for conversation in full:
        await conversation.submit()

    with pytest.raises(OwnerQueueFull, match=r"3 messages waiting .* .MAX_QUEUED_PER_OWNER") as refused:
        await one_more.submit()

    assert (refused.value.cap, refused.value.limit) == ("max_queued_per_owner", 3)
    assert await run_sql(database_url, "select count(*) from runs") == [(3,)]


async def test_one_owners_full_queue_is_nobody_elses(capped: Database) -> None:
    for conversation in await sessions_of(capped, "anna", 3):
        await conversation.submit()
    (other,) = await sessions_of(capped, "bert", 1)

    assert (await other.submit()).run.status is RunStatus.QUEUED


async def test_a_message_sent_again_under_its_key_is_answered_and_not_counted_twice(capped: Database) -> None:
    first, second, third, fourth = await sessions_of(capped, "anna", 4)
    sent = [await conversation.submit(key=f"k{n}") for n, conversation in enumerate((first, second))]
    again = [await conversation.submit(key=f"k{n}") for n, conversation in enumerate((first, second))]
    last = await third.submit(key="last")

    with pytest.raises(OwnerQueueFull):
        await fourth.submit(key="one more")

    assert [one.run.id for one in again] == [one.run.id for one in sent]
    assert (await third.submit(key="last")).run.id == last.run.id


async def test_an_owner_with_all_running_that_may_is_passed_over_until_one_has_ended(capped: Database) -> None:
    busy = await sessions_of(capped, "anna", 3)
    (other,) = await sessions_of(capped, "bert", 1)
    running = [(await conversation.submit(claimer=CLAIMER)).claimed for conversation in busy]
    theirs = await other.submit()

    claimed = [await capped.runs.claim_next(CLAIMER) for _ in range(2)]
    assert running[0] is not None
    await busy[0].end(running[0].lease)
    after = await capped.runs.claim_next(CLAIMER)

    assert [one is not None for one in running] == [True, True, False]
    assert [None if one is None else one.run.id for one in claimed] == [theirs.run.id, None]
    assert after is not None
    assert after.run.session_id == busy[2].session.id


async def test_what_a_free_slot_takes_at_once_does_not_count_as_waiting(database_url: str) -> None:
    caps = Caps(queued_per_session=2, queued_per_owner=2, running_per_owner=2)
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    busy, another = await sessions_of(database, "anna", 2)
    await busy.start()
    for _ in range(2):
        await busy.submit()

    assert (await another.submit(claimer=CLAIMER)).claimed is not None
    await database.close()
