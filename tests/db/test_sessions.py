"""Sessions: made once, listed for their owner, changed, and erased without a trace."""

import asyncio

import pytest

from fakes.conversations import CLAIMER, Conversation, answer_message, claim_next, is_held, open_conversation
from fakes.pooler import shared_address
from fakes.raw_sql import hold_rows, run_sql
from fakes.silent_metrics import SilentMetrics
from fakes.waiting import ManualClock
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.retention import BEFORE_ALL, SESSIONS_AT_ONCE
from throughline.db.sessions.create import CreateOutcome
from throughline.db.sessions.redaction import Redaction
from throughline.db.sessions.repository import SessionChange, SessionQuery
from throughline.db.side_jobs import ARCHIVED_SESSIONS
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import IdempotencyKeyReused, InvalidInput, LeaseLost, NotFound, SessionBusy
from throughline.domain.events import AnswerReset, NewEvent
from throughline.domain.message import NewMessage, Role, Source, ToolCall
from throughline.domain.run import OnBusy
from throughline.domain.session import NewSession
from throughline.turn.worker.retention import ErasureConfig, SessionErasure

TABLES_OF_A_SESSION = (
    "search_terms",
    "search_blocks",
    "message_redactions",
    "sessions",
    "messages",
    "message_pins",
    "runs",
    "run_events",
    "summaries",
    "summary_versions",
)


@pytest.fixture
async def owner_id(database: Database) -> UserId:
    return await database.users.get_or_create("anna")


def new_session(owner_id: UserId, title: str = "", *, key: str | None = None, fingerprint: str = "") -> NewSession:
    return NewSession(
        owner_id=owner_id,
        agent="assistant",
        title=title,
        source=Source.WEB,
        metadata={"b": [1, None]},
        idempotency_key=key,
        fingerprint=fingerprint,
    )


async def test_a_session_comes_back_as_it_was_made(database: Database, owner_id: UserId) -> None:
    created, outcome = await database.sessions.create(new_session(owner_id, "Trip"))

    assert await database.sessions.get(owner_id, created.id) == created
    assert (created.title, created.source, created.metadata) == ("Trip", Source.WEB, {"b": [1, None]})
    assert (created.external_id, outcome) == (None, CreateOutcome.CREATED)


async def test_one_key_makes_one_session_and_another_body_is_refused(database: Database, owner_id: UserId) -> None:
    new = new_session(owner_id, key="k", fingerprint="a")

    created = await asyncio.gather(*(database.sessions.create(new) for _ in range(10)))

    assert len({session.id for session, _ in created}) == 1
    assert [outcome for _, outcome in created].count(CreateOutcome.CREATED) == 1
    with pytest.raises(IdempotencyKeyReused):
        await database.sessions.create(new_session(owner_id, key="k", fingerprint="b"))
    other = await database.users.get_or_create("ben")
    assert (await database.sessions.create(new_session(other, key="k", fingerprint="b")))[1] is CreateOutcome.CREATED


async def test_pages_show_every_session_once_the_last_used_first(database: Database, owner_id: UserId) -> None:
    made = [(await database.sessions.create(new_session(owner_id, f"{n}")))[0].id for n in range(7)]
    await database.sessions.update(owner_id, made[0], SessionChange(title="touched"))

    seen, cursor = [], None
    while True:
        page = await database.sessions.list(owner_id, SessionQuery(limit=3, cursor=cursor))
        seen += [session.id for session in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert seen == [made[0], *reversed(made[1:])]


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "bnVsbA", "W10", "WyJ4IiwgInkiXQ", "é", "WzEsMl0", "A" * 5000])
async def test_a_cursor_that_is_not_ours_is_invalid_input(database: Database, owner_id: UserId, cursor: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await database.sessions.list(owner_id, SessionQuery(cursor=cursor))

    assert refused.value.field == "cursor"


@pytest.mark.parametrize(
    ("q", "found"), [("50%", ["save 50% now"]), ("_", ["a_b"]), ("\\", ["back\\slash"]), ("SAVE", ["save 50% now"])]
)
async def test_search_takes_every_character_for_itself(
    database: Database, owner_id: UserId, q: str, found: list[str]
) -> None:
    for title in ("save 50% now", "a_b", "back\\slash", "500 things"):
        await database.sessions.create(new_session(owner_id, title))

    page = await database.sessions.list(owner_id, SessionQuery(q=q))

    assert [session.title for session in page.items] == found


async def test_sessions_are_found_by_the_smallest_and_largest_id(database: Database, owner_id: UserId) -> None:
    made = [(await database.sessions.create(new_session(owner_id, f"{n}")))[0].id for n in range(4)]

    page = await database.sessions.list(owner_id, SessionQuery(ids=(made[1], made[2])))

    assert [session.id for session in page.items] == [made[2], made[1]]


async def test_archived_sessions_are_listed_only_on_request(database: Database, owner_id: UserId) -> None:
    session, _ = await database.sessions.create(new_session(owner_id))
    changed = await database.sessions.update(owner_id, session.id, SessionChange(archived=True, metadata={"x": "y"}))

    assert (changed.archived, changed.metadata, changed.title) == (True, {"x": "y"}, session.title)
    assert (await database.sessions.list(owner_id, SessionQuery())).items == ()
    assert len((await database.sessions.list(owner_id, SessionQuery(include_archived=True))).items) == 1


async def test_another_owner_cannot_see_change_or_delete(database: Database, owner_id: UserId) -> None:
    session, _ = await database.sessions.create(new_session(owner_id))
    stranger = await database.users.get_or_create("mallory")

    for attempt in (
        database.sessions.get(stranger, session.id),
        database.sessions.update(stranger, session.id, SessionChange(title="mine")),
        database.sessions.delete(stranger, session.id),
    ):
        with pytest.raises(NotFound, match=str(session.id)):
            await attempt
    assert (await database.sessions.list(stranger, SessionQuery())).items == ()
    assert await database.sessions.get(owner_id, session.id) == session


async def test_deleting_erases_everything_of_the_session_and_nothing_else(
    database: Database, database_url: str
) -> None:
    kept, gone = await _full_conversation(database, database_url), await _full_conversation(database, database_url)
    before = await _count(database_url)

    await database.sessions.delete(gone.owner_id, gone.session.id)

    assert await _count(database_url) == {table: count // 2 for table, count in before.items()}
    assert all(count > 0 for count in before.values())
    assert len(await kept.messages()) > 0
    with pytest.raises(NotFound):
        await gone.reload()


async def test_deleting_stops_the_turn_that_is_running(database: Database) -> None:
    conversation = await open_conversation(database)
    claimed = await conversation.start()
    stopped: list[RunId] = []
    database.notifier.on_cancel(stopped.append)

    await database.sessions.delete(conversation.owner_id, conversation.session.id)

    assert stopped == [claimed.run.id]
    assert not await is_held(database, claimed.lease)
    with pytest.raises(LeaseLost):
        await conversation.end(claimed.lease, "answer")


async def test_erasing_opens_no_way_for_other_statements(database: Database, database_url: str) -> None:
    conversation = await _full_conversation(database, database_url)
    other = await _full_conversation(database, database_url)
    await database.sessions.delete(conversation.owner_id, conversation.session.id)

    settings = await run_sql(database_url, "select current_setting('throughline.erasure', true)")

    assert settings == [(None,)]
    assert len(await other.messages()) > 0


async def _full_conversation(database: Database, url: str) -> Conversation:
    """Return a conversation with a row in every table."""
    conversation = await open_conversation(database)
    stored = await conversation.say("one", "two", "three")
    await conversation.adopt(stored[1])
    claimed = await conversation.start()
    await database.events.append_events(claimed.lease, [NewEvent(1, AnswerReset(1))])
    await conversation.end(claimed.lease, "answer")
    await database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, stored[2].id))
    await database.history.index_session(conversation.session.id)
    await conversation.submit("waiting")
    await claim_next(database.runs, CLAIMER)
    pin = "insert into message_pins (message_id, session_id) values ($1, $2)"
    await run_sql(url, pin, stored[0].id, conversation.session.id)
    return conversation


async def _count(url: str) -> dict[str, int]:
    return {
        table: int(str((await run_sql(url, f"select count(*) from {table}"))[0][0])) for table in TABLES_OF_A_SESSION
    }


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


async def test_erasing_somebody_elses_session_waits_for_none_of_its_runs(
    conversation: Conversation, database_url: str
) -> None:
    await conversation.start()
    stranger = await conversation.database.users.get_or_create("mallory")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(size=1, timeout_seconds=5))

    async def hold(tx: Statements) -> None:
        await tx.fetch(sql("select id from runs for update"))
        async with asyncio.timeout(1):
            with pytest.raises(NotFound):
                await conversation.database.sessions.delete(stranger, conversation.session.id)

    await Transactions(pool).run(hold)
    await pool.close()


async def test_a_repeated_message_is_answered_again_after_archiving(conversation: Conversation) -> None:
    first = await conversation.submit("Hi", key="k1", fingerprint="f")
    sessions = conversation.database.sessions
    await sessions.update(conversation.owner_id, conversation.session.id, SessionChange(archived=True))

    again = await conversation.submit("Hi", key="k1", fingerprint="f")

    assert (again.run.id, again.replayed) == (first.run.id, True)
    with pytest.raises(IdempotencyKeyReused):
        await conversation.submit("Other", key="k1", fingerprint="g")
    for on_busy in OnBusy:
        with pytest.raises(InvalidInput, match="archived"):
            await conversation.submit("Hi", key="k2", fingerprint="f", on_busy=on_busy)
