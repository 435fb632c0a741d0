"""Ranking of found messages by what stands around them, and by what the query implies beside its words."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta

import pytest

from benchmarks.figures import connected
from benchmarks.retrieval_data import Line
from benchmarks.retrieval_sessions import Archive
from fakes.conversations import Conversation, open_conversation
from throughline.db.database import Database
from throughline.db.search.query import Days, cues_of
from throughline.domain.message import NewMessage, Role, Source, ToolCall
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
