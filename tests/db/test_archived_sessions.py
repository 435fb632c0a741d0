"""Archived sessions are erased after their time, whole and one by one; whatever is still in use stays."""

import asyncio

import pytest

from fakes.conversations import Conversation, answer_message, open_conversation
from fakes.manual_clock import ManualClock
from fakes.raw_sql import hold_rows, run_sql
from fakes.silent_metrics import SilentMetrics
from throughline.db.database import Database
from throughline.db.job_queue import ARCHIVED_SESSIONS
from throughline.db.retention import BEFORE_ALL, SESSIONS_AT_ONCE
from throughline.db.sessions.repository import SessionChange
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import SessionBusy
from throughline.domain.message import NewMessage, Role, Source, ToolCall
from throughline.turn.worker.retention import ErasureConfig, SessionErasure

DAYS = 30
OLD = DAYS + 1
YOUNG = DAYS - 1


class Eraser:
    """The scheduled work with handles on its clock and on what it reports."""

    def __init__(self, database: Database, **config: float) -> None:
        self.clock, self.metrics = ManualClock(), SilentMetrics()
        chosen = ErasureConfig(DAYS, most=int(config.get("most", 500)))
        self.work = SessionErasure(database.archived_sessions, self.clock, self.metrics, chosen)

    async def run(self) -> int:
        """Run as its schedule does; return how many sessions it says it has erased."""
        (schedule,) = self.work.hourly()
        await schedule.run()
        return sum(int(str(report["count"])) for report in self.metrics.of("retention_deleted"))


async def archive(conversation: Conversation, url: str, days_ago: int = OLD) -> SessionId:
    """Archive the session, as it was done so many days ago."""
    session_id = conversation.session.id
    await conversation.database.sessions.update(conversation.owner_id, session_id, SessionChange(archived=True))
    await run_sql(
        url, "update sessions set updated_at = now() - make_interval(days => $2) where id = $1", session_id, days_ago
    )
    return session_id


async def archived_ones(database: Database, url: str, count: int) -> list[SessionId]:
    return [await archive(await open_conversation(database), url) for _ in range(count)]


async def sessions_left(url: str) -> set[object]:
    return {session_id for (session_id,) in await run_sql(url, "select id from sessions")}


async def test_sessions_archived_long_ago_go_with_their_messages_and_all_others_stay(
    database: Database, database_url: str
) -> None:
    old, young, used = [await open_conversation(database) for _ in range(3)]
    for conversation in (old, young, used):
        await conversation.say("one", "two")
    await archive(old, database_url)
    await archive(young, database_url, YOUNG)
    await run_sql(
        database_url, "update sessions set updated_at = now() - interval '1 year' where id = $1", used.session.id
    )

    assert await Eraser(database).run() == 1
    assert await Eraser(database).run() == 0

    assert await sessions_left(database_url) == {young.session.id, used.session.id}
    left = await run_sql(database_url, "select distinct session_id from messages")
    assert {session_id for (session_id,) in left} == {young.session.id, used.session.id}


async def test_without_the_setting_nothing_is_erased(database: Database) -> None:
    kept = SessionErasure(database.archived_sessions, ManualClock(), SilentMetrics(), ErasureConfig())

    assert kept.hourly() == ()


async def test_one_in_which_a_turn_waits_or_runs_stays_until_it_has_ended(
    database: Database, database_url: str
) -> None:
    waiting, running = await open_conversation(database), await open_conversation(database, "bert")
    claimed = await running.start()
    await waiting.submit("Hello")
    await archive(waiting, database_url)
    await archive(running, database_url)

    assert await Eraser(database).run() == 0
    await running.end(claimed.lease)
    await archive(running, database_url)
    assert await Eraser(database).run() == 1

    assert await sessions_left(database_url) == {waiting.session.id}


async def test_one_that_was_brought_back_or_used_since_it_was_found_stays(
    database: Database, database_url: str
) -> None:
    back, used = await open_conversation(database), await open_conversation(database)
    for conversation in (back, used):
        await archive(conversation, database_url)
    found = await database.archived_sessions.list_old(DAYS, BEFORE_ALL)
    await run_sql(database_url, "update sessions set archived = false where id = $1", back.session.id)
    await run_sql(database_url, "update sessions set updated_at = now() where id = $1", used.session.id)

    assert len(found) == 2
    assert [await database.archived_sessions.erase(session, DAYS) for session in found] == [False, False]
    assert await sessions_left(database_url) == {back.session.id, used.session.id}


async def test_one_that_somebody_holds_is_passed_over_and_keeps_nothing_behind_it(
    database: Database, database_url: str
) -> None:
    first, *_ = await archived_ones(database, database_url, SESSIONS_AT_ONCE + 2)

    async with hold_rows(database_url, f"select from sessions where id = '{first}' for no key update"):
        assert await Eraser(database).run() == SESSIONS_AT_ONCE + 1
    assert await sessions_left(database_url) == {first}
    assert await Eraser(database).run() == 1


async def test_one_that_a_busy_session_quotes_is_passed_over(database: Database, database_url: str) -> None:
    quoted, busy = await open_conversation(database), await open_conversation(database)
    await quoted.say("secret")
    claimed = await busy.start()
    call = ToolCall("c1", "read_history", "{}")
    await database.messages.append_message(claimed.lease, "assistant:0", answer_message("", tool_calls=(call,)))
    text = f"[#1 in session {quoted.session.id}, user] secret"
    result = NewMessage(Role.TOOL, text, Source.API, tool_call_id="c1", name="read_history")
    await database.messages.append_message(claimed.lease, "tool:0:0", result)
    await archive(quoted, database_url)
    other = await archive(await open_conversation(database), database_url)

    (found, _) = await database.archived_sessions.list_old(DAYS, BEFORE_ALL)
    with pytest.raises(SessionBusy):
        await database.archived_sessions.erase(found, DAYS)
    assert await Eraser(database).run() == 1

    assert await sessions_left(database_url) == {quoted.session.id, busy.session.id}
    assert other not in await sessions_left(database_url)


async def test_only_so_many_go_at_one_time_with_pauses_and_the_rest_goes_at_the_next(
    database: Database, database_url: str
) -> None:
    await archived_ones(database, database_url, 5)
    eraser = Eraser(database, most=3)

    assert await eraser.run() == 3
    assert eraser.metrics.of("retention_out_of_time") == [{"kind": ARCHIVED_SESSIONS}]
    assert len(eraser.clock.slept) == 3
    assert all(seconds > 0 for seconds in eraser.clock.slept)
    assert await Eraser(database, most=3).run() == 2

    assert await sessions_left(database_url) == set()


async def test_two_at_once_erase_each_once_and_fail_nobody(database: Database, database_url: str) -> None:
    await archived_ones(database, database_url, 6)

    counts = await asyncio.gather(*(Eraser(database).run() for _ in range(3)))

    assert sum(counts) == 6
    assert await sessions_left(database_url) == set()
