from datetime import UTC, datetime, timedelta

from app.db.database import Database
from app.worker.indexing import Indexing
from fakes.conversations import open_conversation
from fakes.raw_sql import run_sql


async def test_idle_sessions_are_indexed_to_their_last_message(database: Database, database_url: str) -> None:
    idle, busy = await open_conversation(database), await open_conversation(database, "bob")
    for conversation in (idle, busy):
        await conversation.say("one", "two")
    await run_sql(
        database_url,
        "update sessions set updated_at = $2 where id = $1",
        idle.session.id,
        datetime.now(UTC) - timedelta(minutes=10),
    )

    await Indexing(database.history).run()
    await Indexing(database.history).run()

    blocks = await run_sql(database_url, "select session_id, from_position, through_position from search_blocks")
    assert blocks == [(idle.session.id, 1, 2)]
