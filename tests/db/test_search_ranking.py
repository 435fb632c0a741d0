"""Ranking of found messages by what stands around them, and by what the query implies beside its words."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TypeGuard, TypeVar
from uuid import UUID

import pytest

from benchmarks.figures import connected
from benchmarks.retrieval_data import Archive, Line
from fakes.conversations import Conversation, open_conversation
from fakes.pooler import shared_address
from fakes.raw_sql import run_sql
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Row, Statement
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database
from throughline.db.search.analyzer import Analyzer
from throughline.db.search.index_history import LIVE_MESSAGES, HistoryIndex
from throughline.db.search.query import Days, cues_of
from throughline.db.search.repository import MANY_SESSIONS, SearchRepository
from throughline.db.sessions.redaction import Redaction
from throughline.db.side_jobs import INDEX_OWNER, JobClaim, index_job
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import DatabaseBusy
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.recall import HistoryQuery

MAY = datetime(2023, 5, 8, 14, 0, tzinfo=UTC)
FILLER = tuple(f"Nothing in particular happened there, number {number} of many." for number in range(60))


@pytest.fixture
async def archive(database: Database, database_url: str) -> AsyncIterator[Archive]:
    async with connected(database_url) as connection:
        yield Archive(database, connection, await database.users.get_or_create("ranking"))


def line(text: str, speaker: str = "Ana", *, days: int = 0, minutes: int = 0) -> Line:
    return Line(speaker, text, MAY + timedelta(days=days, minutes=minutes))


async def found(archive: Archive, lines: list[Line], query: str, *, index: bool = True) -> list[str]:
    session_id = await archive.fill_session(lines)
    if index:
        await archive.index(session_id)
    hits = await archive.database.history.search(archive.owner_id, session_id, HistoryQuery(query, 20))
    return [hit.message.content for hit in hits.hits if isinstance(hit.message.content, str)]


@pytest.mark.parametrize("index", [True, False])
async def test_the_conversation_of_that_day_counts_for_each_of_its_messages(archive: Archive, *, index: bool) -> None:
    on_topic = [line("The harbour storm broke our boat and the insurance."), *map(line, FILLER[:12])]
    lines = [*on_topic, line("My cousin Vera can repair it next week.", minutes=30)]
    lines += [line(text, days=3) for text in FILLER[12:30]] + [line("My cousin Vera sings in a choir.", days=3)]

    texts = await found(archive, lines, "Vera harbour storm", index=index)

    assert texts.index("My cousin Vera can repair it next week.") < texts.index("My cousin Vera sings in a choir.")


async def test_without_a_pause_all_messages_are_one_episode(archive: Archive) -> None:
    session_id = await archive.fill_session([line(text, minutes=number) for number, text in enumerate(FILLER)])
    await archive.index(session_id)

    assert await archive.connection.fetch("select from search_terms where term = '^'") == []


@pytest.mark.parametrize("index", [True, False])
async def test_without_pauses_the_passage_counts_for_each_of_its_messages(archive: Archive, *, index: bool) -> None:
    on_topic = [*map(line, FILLER[:6]), line("The harbour storm broke our boat."), *map(line, FILLER[6:13])]
    lines = [*on_topic, line("My cousin Vera can repair it next week."), *map(line, FILLER[13:40])]
    lines.append(line("My cousin Vera can repair a roof next week."))

    texts = await found(archive, lines, "Vera harbour storm", index=index)

    assert next(text for text in texts if "Vera" in text) == "My cousin Vera can repair it next week."


async def test_a_message_beside_a_better_one_comes_after_those_of_other_parts(archive: Archive) -> None:
    hall, stairs = (f"The museum chose green paint for the {place}." for place in ("hall", "staircase"))
    gate, door = (f"The museum chose green paint for the {place} at last." for place in ("gate", "side door"))
    lines = [*map(line, (*FILLER[:20], hall, stairs, *FILLER[20:40], gate, door, *FILLER[40:]))]

    texts = await found(archive, lines, "museum green paint")

    assert {text in {hall, stairs} for text in texts[:2]} == {True, False}
    assert {*texts[:4]} == {hall, stairs, gate, door}


async def test_an_answer_counts_with_the_question_before_it(archive: Archive) -> None:
    lines = [*map(line, FILLER[:9]), line("Which paint did the museum choose?"), line("A dark green one.", "Ben")]
    lines += [*map(line, FILLER[9:18]), line("A dark green one is nicer than a red one, in general, for cars.", "Ben")]

    assert (await found(archive, lines, "museum paint green"))[0] == "A dark green one."


LONG_ANSWER = "A harbour needs a plan. " + " ".join(
    f"Step {number}: check the boat, the insurance and the storm cover, then call the harbour office."
    for number in range(40)
)


async def ranked_roles(archive: Archive, query: str, *said: tuple[str, str]) -> list[str]:
    lines = [Line("", text, MAY + timedelta(minutes=number), role) for number, (role, text) in enumerate(said)]
    session_id = await archive.fill_session(lines)
    await archive.index(session_id)
    hits = (await archive.database.history.search(archive.owner_id, session_id, HistoryQuery(query, 20))).hits
    return [hit.message.role.value for hit in hits]


FILLED = tuple(("user" if number % 2 else "assistant", text) for number, text in enumerate(FILLER[:20]))


async def test_a_users_statement_comes_before_a_long_answer_that_repeats_it(archive: Archive) -> None:
    said = ("user", "My boat is in the harbour, and its insurance does not cover a storm."), ("assistant", LONG_ANSWER)

    assert (await ranked_roles(archive, "boat harbour insurance storm", *FILLED, *said, *FILLED))[0] == "user"


async def test_what_the_assistant_suggested_is_found_in_its_answer(archive: Archive) -> None:
    statement = ("user", "The harbour office wants a plan.")
    roles = await ranked_roles(
        archive, "What did you suggest for the harbour storm?", *FILLED, statement, ("assistant", LONG_ANSWER), *FILLED
    )

    assert roles[0] == "assistant"


async def test_an_answer_says_nothing_about_what_the_user_asks_next(archive: Archive) -> None:
    changed = ("user", "Thanks, something else: which train goes to Basel in the morning?")
    lines = [Line("", text, MAY, role) for role, text in (*FILLED, ("assistant", LONG_ANSWER), changed, *FILLED)]
    session_id = await archive.fill_session(lines)
    await archive.index(session_id)
    asked = HistoryQuery("insurance of the boat in a storm", 2)
    hits = (await archive.database.history.search(archive.owner_id, session_id, asked)).hits

    assert LONG_ANSWER in [hit.message.content for hit in hits]
    assert changed[1] not in [hit.message.content for hit in hits]


async def test_a_question_put_to_the_assistant_counts_more_than_one_put_to_people(archive: Archive) -> None:
    scores = {}
    for role in ("assistant", "user"):
        asked = Line("", "Did the parcel from the printing office arrive?", MAY)
        lines = [asked, Line("", "That is unknown so far.", MAY, role), *(Line("", text, MAY) for text in FILLER[:20])]
        session_id = await archive.fill_session(lines)
        await archive.index(session_id)
        query = HistoryQuery("parcel printing office", 1)
        hits = await archive.database.history.search(archive.owner_id, session_id, query)
        scores[role] = hits.hits[0].score

    assert scores["assistant"] > 1.1 * scores["user"]


async def test_entries_of_another_encoding_are_not_read(archive: Archive) -> None:
    session_id = await archive.fill_session([*map(line, FILLER), line("The parcel is at the printing office.")])
    await archive.index(session_id)
    await archive.connection.execute("update search_blocks set analyzer = 'english-1'")
    await archive.connection.execute("update search_terms set entries = array(select unnest(entries) / 2)")
    query = HistoryQuery("parcel printing office", 1, is_before_turn=True)

    hits = (await archive.database.history.search(archive.owner_id, session_id, query)).hits

    assert [hit.message.content for hit in hits] == ["The parcel is at the printing office."]


@pytest.mark.parametrize("query", ["parcel", "role:user"])
async def test_a_search_of_all_sessions_leaves_out_those_that_expire(archive: Archive, query: str) -> None:
    session_id = await archive.fill_session([line("The parcel is here.")])
    await archive.index(session_id)
    await archive.connection.execute("update sessions set expires_at = now() + interval '1 hour'")

    search = partial(archive.database.history.search, archive.owner_id)
    found = [await search(where, HistoryQuery(query)) for where in (None, session_id)]

    assert [len(result.hits) for result in found] == [0, 1]


async def test_messages_of_a_named_person_come_first(archive: Archive) -> None:
    words = "likes walking along the river after work in the evening"
    lines = [line(f"Somebody {words}.", name) for name in ("Ana", "Ben", "Cleo", "Dan")] + [*map(line, FILLER)]
    session_id = await archive.fill_session(lines)
    await archive.index(session_id)
    asked = HistoryQuery("What did Cleo say of walking by the river?", 1)
    hits = (await archive.database.history.search(archive.owner_id, session_id, asked)).hits

    assert [hit.message.author for hit in hits] == ["Cleo"]


async def test_a_statement_comes_before_the_same_words_as_a_question(archive: Archive) -> None:
    asked, told = "Did the parcel from the printing office arrive?", "The parcel from the printing office did arrive."
    texts = await found(archive, [line(told), *map(line, FILLER[:20]), line(asked)], "parcel printing office")

    assert texts[0] == told


async def test_days_that_the_query_names_come_first(archive: Archive) -> None:
    lines = [line(f"We painted the fence again, for the {number}. time.", days=31 * number) for number in range(6)]

    assert (await found(archive, lines, "painted the fence in August 2023"))[0].startswith(
        "We painted the fence again, for the 3."
    )


async def test_when_asks_for_messages_that_tell_a_time(archive: Archive) -> None:
    lines = [line("The choir gave its concert in the old church."), *map(line, FILLER[:20])]
    lines += [line("The choir gave its concert on Saturday evening."), *map(line, FILLER[20:40])]

    assert "Saturday" in (await found(archive, lines, "When did the choir give its concert?"))[0]


async def test_an_earlier_search_for_the_words_is_not_found(database: Database) -> None:
    conversation: Conversation = await open_conversation(database)
    call = ToolCall(id="c1", name="search_history", arguments='{"query": "lighthouse keeper"}')
    claimed = await conversation.start()
    append = database.messages.append_message
    message = NewMessage(role=Role.ASSISTANT, content="", source=Source.API, tool_calls=(call,))
    await append(claimed.lease, "step:1", message)
    await conversation.end(claimed.lease)

    hits = await database.history.search(conversation.owner_id, conversation.session.id, HistoryQuery("lighthouse"))

    assert hits.hits == ()


TODAY = date(2024, 2, 29)


@pytest.mark.parametrize(
    ("text", "since", "days"),
    [
        ("what was decided on 8 May, 2023", "2023-05-08", 1),
        ("on May 8th 2023?", "2023-05-08", 1),
        ("notes of 2023-05-08", "2023-05-08", 1),
        ("in February of 2024", "2024-02-01", 29),
        ("yesterday", "2024-02-28", 1),
        ("last week", "2024-02-19", 7),
        ("last month", "2024-01-01", 31),
        ("last year", "2023-01-01", 365),
        ("last spring", "2023-03-01", 92),
        ("last winter", "2022-12-01", 90),
        ("last Fall", "2023-09-01", 91),
    ],
)
def test_days_are_read_from_the_words_of_a_query(text: str, since: str, days: int) -> None:
    start = datetime.fromisoformat(since).replace(tzinfo=UTC)

    assert cues_of(text, TODAY).days == (Days(start, start + timedelta(days=days + 7)),)


@pytest.mark.parametrize(
    "text", ["may I go", "31 April 2023", "0000-01-01", "last one", "12:30", "3 May", "9999-13-01"]
)
def test_other_words_name_no_day_without_a_date_of_the_question(text: str) -> None:
    assert cues_of(text, None).days == ()


@pytest.mark.parametrize("text", ["Auguſt", "laſt ſpring", "aprıl 2024", "yeſterday"])
def test_letters_that_only_look_alike_name_no_day(text: str) -> None:
    assert cues_of(text, TODAY).days == ()


def test_a_month_without_a_year_is_that_of_the_last_years() -> None:
    days = cues_of("our trip in July", TODAY).days

    assert [found.since.year for found in days] == list(range(2024, 2014, -1))
    assert {found.since.month for found in days} == {7}


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("When was it?", True),
        ("  how long did it take", True),
        ("in which year", True),
        ("what is it when it rains", False),
    ],
)
def test_questions_for_a_time_are_recognised(text: str, *, asks: bool) -> None:
    assert cues_of(text, None).asks_when is asks


T = TypeVar("T")
MARKED = "select id from sessions where unindexed_since is not null order by id"
BLOCKS = "select session_id, from_position, through_position from search_blocks order by 1, 2"
FILL = """
    with own as (
        insert into sessions (id, owner_id, agent, source)
        select gen_random_uuid(), $1, 'assistant', 'api' from generate_series(1, $2) returning id
    )
    insert into messages (id, session_id, position, role, content, source)
    select gen_random_uuid(), own.id, p, 'user', 'The kestrel hovers, message ' || p, 'api'
    from own, generate_series(1, $3) p
"""
COUNT = "update sessions s set message_count = (select count(*) from messages m where m.session_id = s.id)"


def is_writing(intent: object) -> TypeGuard[partial[object]]:
    """Whether the transaction writes blocks; behind a pooler each statement is a transaction."""
    return isinstance(intent, partial)


class WatchedTransactions(Transactions):
    """Counts statements, and awaits `before_writing` once before blocks are written."""

    statements = 0
    before_writing: Callable[[], Awaitable[object]] | None = None

    async def fetch(self, statement: Statement, /, **parameters: object) -> list[Row]:
        self.statements += 1
        return list(await super().fetch(statement, **parameters))

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        self.statements += 1
        if is_writing(intent) and self.before_writing is not None:
            hook, self.before_writing = self.before_writing, None
            await hook()
        return await super().run(intent)


@pytest.fixture
async def transactions(database_url: str) -> AsyncIterator[WatchedTransactions]:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(2, 5.0))
    yield WatchedTransactions(pool)
    await pool.close()


async def fill(url: str, conversation: Conversation, sessions: int, messages: int) -> None:
    """Store sessions without runs, as imports do."""
    await run_sql(url, FILL, conversation.owner_id, sessions, messages)
    await run_sql(url, COUNT)


async def talks(database: Database, number: int) -> list[tuple[Conversation, list[Message]]]:
    """Return conversations of one owner with two messages each, by their sessions' ids."""
    opened = [await open_conversation(database) for _ in range(number)]
    return [(one, await one.say("The kestrel hovers.", "It dives.")) for one in opened]


def blocks_of(*sessions: SessionId) -> list[tuple[object, ...]]:
    return [(session_id, 1, 2) for session_id in sorted(sessions)]


async def test_many_sessions_are_indexed_with_few_statements(
    conversation: Conversation, transactions: WatchedTransactions, database_url: str
) -> None:
    await fill(database_url, conversation, sessions=300, messages=3)
    history = SearchRepository(transactions, conversation.database.messages, conversation.database.jobs, "english")

    messages, is_more_due = await history.index_owner(conversation.owner_id)

    assert (messages, is_more_due) == (900, False)
    assert transactions.statements < 20
    assert await run_sql(database_url, "select sum(cardinality(entries)) from search_terms where term = 'kestrel'") == [
        (900,)
    ]


async def test_sessions_are_marked_while_they_have_unindexed_messages(database: Database, database_url: str) -> None:
    ((talk, messages),) = await talks(database, 1)
    marks = [await run_sql(database_url, MARKED)]
    for change in (
        lambda: database.history.index_session(talk.session.id),
        lambda: talk.say("More."),
        lambda: database.history.index_session(talk.session.id),
        lambda: database.messages.redact(Redaction(talk.owner_id, talk.session.id, messages[0].id)),
        lambda: database.history.index_session(talk.session.id),
    ):
        await change()
        marks.append(await run_sql(database_url, MARKED))

    marked = [(talk.session.id,)]
    assert marks == [marked, [], marked, [], marked, []]


async def test_a_search_looks_only_at_marked_sessions(database: Database, database_url: str) -> None:
    first, second = [talk for talk, _ in await talks(database, 2)]
    await run_sql(database_url, "update sessions set unindexed_since = null where id = $1", first.session.id)

    found = await database.history.search(first.owner_id, None, HistoryQuery("kestrel"))

    assert {hit.message.session_id for hit in found.hits} == {second.session.id}


async def test_marks_of_indexed_sessions_are_cleared_by_the_job(database: Database, database_url: str) -> None:
    ((talk, _),) = await talks(database, 1)
    await database.history.index_session(talk.session.id)
    await run_sql(database_url, "update sessions set unindexed_since = now()")

    await database.history.index_owner(talk.owner_id)

    assert await run_sql(database_url, MARKED) == []


async def test_a_redaction_meanwhile_keeps_only_its_own_session_from_being_stored(
    database: Database, transactions: WatchedTransactions, database_url: str
) -> None:
    held = await talks(database, 3)
    redacted, (secret, _) = held[1]
    wanted = Redaction(redacted.owner_id, redacted.session.id, secret.id)
    transactions.before_writing = lambda: database.messages.redact(wanted)

    index = HistoryIndex(transactions, Analyzer("english"))
    stored = await index.index_blocks([talk.session.id for talk, _ in held])

    assert stored == 4
    assert await run_sql(database_url, BLOCKS) == blocks_of(held[0][0].session.id, held[2][0].session.id)
    assert await run_sql(database_url, MARKED) == [(redacted.session.id,)]


async def test_a_message_that_comes_meanwhile_keeps_the_mark(
    database: Database, transactions: WatchedTransactions, database_url: str
) -> None:
    ((talk, _),) = await talks(database, 1)
    transactions.before_writing = lambda: talk.say("Late.")

    await HistoryIndex(transactions, Analyzer("english")).index_blocks([talk.session.id])

    assert await run_sql(database_url, BLOCKS) == blocks_of(talk.session.id)
    assert await run_sql(database_url, MARKED) == [(talk.session.id,)]


async def test_indexers_of_the_same_sessions_at_once_store_each_message_once(
    conversation: Conversation, database_url: str
) -> None:
    await fill(database_url, conversation, sessions=20, messages=2)
    sessions = [SessionId(UUID(str(session_id))) for (session_id,) in await run_sql(database_url, MARKED)]
    pool = ConnectionPool(shared_address(database_url), PoolConfig(4, 5.0))
    index = HistoryIndex(Transactions(pool), Analyzer("english"))

    await asyncio.gather(*(index.index_blocks(order) for order in (sessions, sessions[::-1], sessions[5:])))
    await pool.close()

    assert await run_sql(database_url, BLOCKS) == blocks_of(*sessions)
    assert await run_sql(database_url, MARKED) == []
    assert await run_sql(database_url, "select sum(cardinality(entries)) from search_terms where term = 'kestrel'") == [
        (40,)
    ]


class LockedTransactions(Transactions):
    """Cannot write blocks of the session `locked`, whose row stays locked for too long."""

    locked: SessionId | None = None

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        if is_writing(intent) and any(block.session_id == self.locked for block in intent.keywords["blocks"]):
            raise DatabaseBusy("The database waited too long for a lock.")
        return await super().run(intent)


async def test_a_session_that_cannot_be_indexed_stops_no_other(
    conversation: Conversation, database: Database, database_url: str
) -> None:
    await fill(database_url, conversation, sessions=4, messages=2)
    sessions = [SessionId(UUID(str(session_id))) for (session_id,) in await run_sql(database_url, MARKED)]
    pool = ConnectionPool(shared_address(database_url), PoolConfig(2, 5.0))
    transactions = LockedTransactions(pool)
    transactions.locked = sessions[1]

    history = SearchRepository(transactions, database.messages, database.jobs, "english")
    indexed = await history.index_owner(conversation.owner_id)
    await pool.close()

    assert indexed == (6, True)
    assert await run_sql(database_url, BLOCKS) == blocks_of(sessions[0], *sessions[2:])


@pytest.mark.parametrize("is_under_way", [True, False])
async def test_a_search_leaves_many_sessions_to_a_job_that_is_under_way(
    conversation: Conversation, database: Database, database_url: str, *, is_under_way: bool
) -> None:
    await fill(database_url, conversation, sessions=MANY_SESSIONS + LIVE_MESSAGES, messages=2)
    await database.jobs.enqueue(index_job(conversation.owner_id))
    if is_under_way:
        await database.jobs.claim(JobClaim("worker", 60.0, [INDEX_OWNER]))

    found = await database.history.search(conversation.owner_id, None, HistoryQuery("kestrel"))

    has_indexed = await run_sql(database_url, BLOCKS) != []
    assert (has_indexed, bool(found.incomplete_sessions)) == (not is_under_way, is_under_way)


async def test_blocks_of_another_analyzer_are_in_nobodys_way(database: Database, database_url: str) -> None:
    conversation = await open_conversation(database)
    await conversation.say(*[f"The kestrel hovers, message {number}" for number in range(40)])
    await database.history.index_session(conversation.session.id)
    await conversation.say("The kestrel lands.", "The kestrel eats.")
    await database.history.index_session(conversation.session.id)
    await run_sql(database_url, "update search_blocks set analyzer = 'german-2' where from_position > 1")

    async with asyncio.timeout(HANG_SECONDS):
        indexed = await database.history.index_session(conversation.session.id)

    assert indexed == 2
    assert await run_sql(database_url, "select 1 from search_blocks where analyzer = 'german-2'") == []
