"""Sessions: made once, listed for their owner, changed, and erased without a trace."""

import asyncio

import pytest

from fakes.conversations import CLAIMER, Conversation, is_held, open_conversation
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.db.sessions.create import CreateOutcome
from throughline.db.sessions.redaction import Redaction
from throughline.db.sessions.repository import SessionChange, SessionQuery
from throughline.domain.basic_types import RunId, UserId
from throughline.domain.errors import IdempotencyKeyReused, InvalidInput, LeaseLost, NotFound
from throughline.domain.events import AnswerReset, NewEvent
from throughline.domain.message import Source
from throughline.domain.session import NewSession

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


async def test_erasing_opens_no_door_for_other_statements(database: Database, database_url: str) -> None:
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
    await database.runs.claim_next(CLAIMER)
    pin = "insert into message_pins (message_id, session_id) values ($1, $2)"
    await run_sql(url, pin, stored[0].id, conversation.session.id)
    return conversation


async def _count(url: str) -> dict[str, int]:
    return {
        table: int(str((await run_sql(url, f"select count(*) from {table}"))[0][0])) for table in TABLES_OF_A_SESSION
    }
