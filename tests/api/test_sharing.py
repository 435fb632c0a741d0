"""Whether there are participants at all is asked once: for good where there are, every few seconds where not."""

from uuid import uuid4

import pytest

from fakes.manual_clock import ManualClock
from fakes.raw_sql import run_sql
from fakes.slack_double import TEAM
from fakes.slack_inbox import take
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import ThroughlineError
from throughline.http.admitted_request import ASK_AGAIN_SECONDS, SharedSessions

CHANNEL = "C0GENERAL"


async def test_the_first_participant_is_seen_some_seconds_later(database: Database) -> None:
    clock = ManualClock()
    shared = SharedSessions(database.participants, clock)
    anna = await database.users.get_or_create(f"slack:{TEAM}:U0ANNA001")
    assert await shared.owner_for(anna, session_id=SessionId(uuid4())) is None
    session = await take(database, "hello", channel=CHANNEL, user="U0ANNA001")

    at_once = await shared.owner_for(anna, session_id=session)
    clock.advance(ASK_AGAIN_SECONDS)
    later = await shared.owner_for(anna, session_id=session)

    assert at_once is None
    assert later == await database.users.get(f"slack:{TEAM}:{CHANNEL}")


async def test_without_participants_the_database_is_asked_once_in_some_seconds(
    database: Database, database_url: str
) -> None:
    clock = ManualClock()
    shared = SharedSessions(database.participants, clock)
    anna = await database.users.get_or_create("anna")
    await shared.owner_for(anna, session_id=SessionId(uuid4()))
    await run_sql(database_url, "alter table slack_participants rename to away")

    for _request in range(3):
        assert await shared.owner_for(anna, session_id=SessionId(uuid4())) is None
    clock.advance(ASK_AGAIN_SECONDS)
    with pytest.raises(ThroughlineError, match="refused a statement"):
        await shared.owner_for(anna, session_id=SessionId(uuid4()))
