"""Claiming between owners: whoever has the fewest running comes first, then whoever was not served for longest."""

import json
from dataclasses import replace
from uuid import uuid4

import pytest

from fakes.conversations import CLAIMER, Conversation, open_conversation
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.runs.repository import CLAIM
from throughline.domain.run import Claimer

ENTRIES = """
    with made as (
        insert into sessions (id, owner_id, agent, source, metadata)
        select gen_random_uuid(), $1, 'assistant', 'api', '{}' from generate_series(1, $2::integer) returning id
    )
    insert into runs (id, session_id, owner_id, agent, input, source, status)
    select gen_random_uuid(), id, $1, 'assistant', '{"content": "Hi", "metadata": {}}', 'api', 'queued' from made
"""


async def conversation_of(database: Database, owner: str) -> Conversation:
    """Return a new session of this owner."""
    return await open_conversation(database, owner=owner)


async def serve_next(database: Database, owners: dict[object, str]) -> str:
    """Claim the next run and end it; return whose it was."""
    claimed = await database.runs.claim_next(CLAIMER)
    assert claimed is not None
    await (await open_conversation(database)).end(claimed.lease)
    return owners[claimed.run.owner_id]


async def test_one_message_comes_before_all_but_the_first_of_another_users_queue(database: Database) -> None:
    many = [await conversation_of(database, "anna") for _ in range(20)]
    for conversation in many:
        await conversation.submit()
    one = await conversation_of(database, "bert")
    await one.submit()

    claimed = [await database.runs.claim_next(CLAIMER) for _ in range(3)]

    assert [run is not None and run.run.owner_id for run in claimed] == [
        many[0].owner_id,
        one.owner_id,
        many[0].owner_id,
    ]


async def test_owners_take_turns_where_one_run_is_worked_on_at_a_time(database: Database) -> None:
    owners: dict[object, str] = {}
    for name, number in (("anna", 4), ("bert", 2), ("cora", 1)):
        for _ in range(number):
            conversation = await conversation_of(database, name)
            owners[conversation.owner_id] = name
            await conversation.submit()

    served = [await serve_next(database, owners) for _ in range(7)]

    assert served == ["anna", "bert", "cora", "anna", "bert", "anna", "anna"]


async def test_of_one_owner_the_oldest_is_taken_and_a_busy_session_is_passed_over(database: Database) -> None:
    first, second = await conversation_of(database, "anna"), await conversation_of(database, "anna")
    submitted = [await conversation.submit() for conversation in (first, first, second)]

    claimed = [await database.runs.claim_next(CLAIMER) for _ in range(3)]

    assert [None if one is None else one.run.id for one in claimed] == [submitted[0].run.id, submitted[2].run.id, None]


async def test_a_new_message_does_not_overtake_older_ones_of_its_user_that_could_be_taken(database: Database) -> None:
    older, newer = await conversation_of(database, "anna"), await conversation_of(database, "anna")
    waiting = await older.submit()

    submitted = await newer.submit(claimer=CLAIMER)
    claimed = [await database.runs.claim_next(CLAIMER) for _ in range(2)]

    assert submitted.claimed is None
    assert [None if one is None else one.run.id for one in claimed] == [waiting.run.id, submitted.run.id]


async def test_a_new_message_is_taken_at_once_where_older_ones_wait_for_their_sessions(
    database: Database,
) -> None:
    busy, free = await conversation_of(database, "anna"), await conversation_of(database, "anna")
    await busy.start()
    await busy.submit()
    await (await conversation_of(database, "bert")).submit()

    assert (await free.submit(claimer=CLAIMER)).claimed is not None


async def test_a_run_whose_worker_died_comes_before_all_that_waits(database: Database) -> None:
    begun, waiting = await conversation_of(database, "anna"), await conversation_of(database, "bert")
    lost = await begun.start(claimer=Claimer("dead", lease_seconds=0))
    await waiting.submit()

    claimed = await database.runs.claim_next(CLAIMER)

    assert claimed is not None
    assert claimed.run.id == lost.run.id


async def test_whoever_claims_for_one_owner_leaves_what_others_have_waiting_or_lost(database: Database) -> None:
    anna, bert, cora = [await conversation_of(database, name) for name in ("anna", "bert", "cora")]
    await cora.start(claimer=Claimer("dead", lease_seconds=0))
    await anna.submit()
    mine = await bert.submit()
    only_bert = replace(CLAIMER, only_for=bert.owner_id)

    claimed = [await database.runs.claim_next(only_bert) for _ in range(2)]

    assert [one and one.run.id for one in claimed] == [mine.run.id, None]


async def test_whoever_claims_for_one_owner_takes_up_what_a_dead_worker_left_of_theirs(database: Database) -> None:
    bert = await conversation_of(database, "bert")
    lost = await bert.start(claimer=Claimer("dead", lease_seconds=0))

    claimed = await database.runs.claim_next(replace(CLAIMER, only_for=bert.owner_id))

    assert claimed is not None
    assert claimed.run.id == lost.run.id


async def pages_read(url: str) -> int:
    """Return how many pages a claim reads, which then does not happen."""
    asked: dict[str, object] = {
        "held": [],
        "skipped_attempt": None,
        "worker": "w",
        "claim_id": uuid4(),
        "lease_seconds": 10,
        "max_running_of_owner": 250,
    }
    plan = await run_sql(url, f"explain (analyze, buffers, format json) {CLAIM.text}", *CLAIM.arguments(asked))
    top = json.loads(str(plan[0][0]))[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


@pytest.mark.slow
async def test_a_claim_does_not_read_the_queue(database: Database, database_url: str) -> None:
    conversation = await conversation_of(database, "anna")
    read = []
    await run_sql(database_url, "vacuum runs")  # deleted rows of other tests would be read, too
    for more in (500, 9_500):
        await run_sql(database_url, ENTRIES, conversation.owner_id, more)
        await run_sql(database_url, "analyze runs")
        read.append(await pages_read(database_url))

    assert read[1] < 2 * read[0] + 50
