"""Migrations of a database in use: nothing stored is lost on the way, and a kill in the middle can be gone on from."""

import asyncio
import os
import sys

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest

from fakes.conversations import open_conversation
from fakes.programs import ROOT
from fakes.raw_sql import BACKENDS, hold_rows, run_sql, until_sql
from fakes.slack_double import TEAM
from fakes.slack_inbox import take
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.address import parse_address
from throughline.db.connection.migrations import downgrade, status, upgrade
from throughline.db.database import Database
from throughline.db.slack.people import SlackId
from throughline.domain.errors import DatabaseUnavailable

STORED = "select id, session_id, position, role, content, run_id, step from messages order by session_id, position"
FIRST = "0001"
BEFORE_CHANGES_OF_SESSIONS = "0011"
BEFORE_RETENTION = "0019"
BEFORE_UNLINKING = "0020"
BEFORE_PARTICIPANTS = "0022"
INDEXES = """
    select indexrelid::regclass::text, indisvalid from pg_index
    where indexrelid in (to_regclass('runs_keyed'), to_regclass('sessions_keyed'), to_regclass('sessions_archived'))
    order by 1
"""
KEYED_RUNS = """
    insert into runs (id, session_id, owner_id, agent, input, source, status, idempotency_key)
    select gen_random_uuid(), $1, $2, 'assistant', '{"content": "Hi", "metadata": {}}', 'api', 'succeeded',
        gen_random_uuid()::text from generate_series(1, 2000)
"""
UPGRADE = (
    "import asyncio, sys; from throughline.db.connection.migrations import upgrade; asyncio.run(upgrade(sys.argv[1]))"
)
WAITING = f"select 1 from {BACKENDS} where application_name = 'throughline migration' and wait_event_type = 'Lock'"

pytestmark = pytest.mark.slow


async def test_a_database_in_use_goes_down_and_up_again_and_keeps_every_message(
    database: Database, database_url: str
) -> None:
    conversation = await open_conversation(database)
    stored = await conversation.say("first", "second", "third")
    await conversation.adopt(stored[1])
    await conversation.pin(stored[0])
    waiting = (await conversation.submit("never read")).run
    await database.runs.request_cancel(conversation.owner_id, waiting.id)
    before = await run_sql(database_url, STORED)

    await downgrade(database_url, FIRST)
    await upgrade(database_url)

    assert await run_sql(database_url, STORED) == before
    assert len(before) == 4
    assert (await conversation.reload()).summary_through_position == 2


async def test_somebody_unlinked_is_a_guest_to_earlier_versions(database: Database, database_url: str) -> None:
    guest = await database.users.get_or_create("slack:T1:U1")
    await run_sql(database_url, "insert into slack_users values ('T1', 'U1', $1, 'unlinked')", guest)

    await downgrade(database_url, BEFORE_UNLINKING)
    before = await run_sql(database_url, "select linked_by from slack_users")
    await upgrade(database_url)

    assert before == await run_sql(database_url, "select linked_by from slack_users") == [("guest",)]


async def test_participants_are_known_by_what_they_wrote(database: Database, database_url: str) -> None:
    session = await take(database, "hello", channel="C0GENERAL", user="U0ANNA001")
    await take(database, "hello", channel="C0GENERAL", user="U0BERT001", thread=True)
    people = database.open_slack("").people
    anna = await database.users.get_or_create("anna")
    for slack_user in ("U0ANNA001", "U0NEVER01"):
        await people.link_by_code(SlackId(TEAM, slack_user), await people.new_code(anna))
    participants = "select session_id, slack_user_id from slack_participants order by slack_user_id"
    before = await run_sql(database_url, participants)

    await downgrade(database_url, BEFORE_PARTICIPANTS)
    earlier = await run_sql(database_url, "select user_id from session_participants where user_id = $1", anna)
    redacted = """update runs set input = '{"content": "", "metadata": {}}'
        where input #>> '{metadata,slack,user}' = 'U0BERT001'"""
    await run_sql(database_url, redacted)
    await upgrade(database_url)

    assert earlier == [(anna,)]
    assert await run_sql(database_url, participants) == before == [(session, "U0ANNA001"), (session, "U0BERT001")]


async def test_indexes_for_retention_are_built_beside_those_who_write(database: Database, database_url: str) -> None:
    conversation = await open_conversation(database)
    await run_sql(database_url, KEYED_RUNS, conversation.session.id, conversation.owner_id)
    await downgrade(database_url, BEFORE_RETENTION)
    gone = await run_sql(database_url, INDEXES)

    async with hold_rows(database_url, "update runs set agent = 'held' where seq = (select min(seq) from runs)"):
        building = asyncio.create_task(upgrade(database_url))
        await until_sql(database_url, WAITING)
        await run_sql(database_url, KEYED_RUNS, conversation.session.id, conversation.owner_id)
        is_waiting = not building.done()
    await building
    built = await run_sql(database_url, INDEXES)
    await downgrade(database_url, BEFORE_RETENTION)
    await upgrade(database_url)

    assert is_waiting
    assert gone == []
    assert built == [("runs_keyed", True), ("sessions_archived", True), ("sessions_keyed", True)]
    assert await run_sql(database_url, INDEXES) == built


async def test_an_index_whose_build_was_interrupted_is_built_anew(database: Database, database_url: str) -> None:
    conversation = await open_conversation(database)
    await run_sql(database_url, KEYED_RUNS, conversation.session.id, conversation.owner_id)
    await downgrade(database_url, BEFORE_RETENTION)

    async with hold_rows(database_url, "update runs set agent = 'held' where seq = (select min(seq) from runs)"):
        building = asyncio.create_task(upgrade(database_url))
        await until_sql(database_url, WAITING)
        await run_sql(database_url, WAITING.replace("select 1", "select pg_terminate_backend(pid)"))
        with pytest.raises(DatabaseUnavailable):
            await building
    left = await run_sql(database_url, INDEXES)
    await upgrade(database_url)

    assert left == [("runs_keyed", False)]
    assert await run_sql(database_url, INDEXES) == [
        ("runs_keyed", True),
        ("sessions_archived", True),
        ("sessions_keyed", True),
    ]


async def test_a_migration_that_is_killed_half_way_is_gone_on_from(empty_database_url: str) -> None:
    await upgrade(empty_database_url)
    await downgrade(empty_database_url, BEFORE_CHANGES_OF_SESSIONS)
    holder = await asyncpg.connect(**parse_address(empty_database_url).arguments())
    async with holder.transaction():
        await holder.execute("lock table sessions in access exclusive mode")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", UPGRADE, empty_database_url, env={**os.environ, "PYTHONPATH": str(ROOT / "app")}
        )
        await until_sql(empty_database_url, WAITING)
        process.kill()
        await process.wait()
    await holder.close()

    async with asyncio.timeout(HANG_SECONDS):
        await upgrade(empty_database_url)

    assert (await status(empty_database_url)).is_current
