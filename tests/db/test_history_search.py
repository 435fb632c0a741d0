"""History search: what is found, how it is ranked and narrowed down, and that nobody finds what is not theirs."""

import asyncio
from datetime import UTC, datetime

import pytest

from fakes.conversations import Conversation, answer_message, open_conversation
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import NotFound
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.recall import Found, HistoryFilter, HistoryQuery

FILLER = tuple(f"Chatter about nothing in particular, line {number}." for number in range(80))


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


async def search(conversation: Conversation, text: str, *, limit: int = 5, only: HistoryFilter | None = None) -> Found:
    query = HistoryQuery(text, limit, only or HistoryFilter())
    return await conversation.database.history.search(conversation.owner_id, conversation.session.id, query)


def positions(found: Found) -> list[int]:
    return [hit.message.position for hit in found.hits]


async def say_all(conversation: Conversation, *messages: NewMessage) -> list[Message]:
    claimed = await conversation.start()
    append = conversation.database.messages.append_message
    stored = [await append(claimed.lease, f"step:{number}", message) for number, message in enumerate(messages)]
    await conversation.end(claimed.lease)
    return stored


def said(text: str, author: str | None = None) -> NewMessage:
    return NewMessage(role=Role.USER, content=text, source=Source.API, author=author)


@pytest.mark.parametrize(
    "asked",
    [
        "app/db/messages.py",
        "messages.py",
        "ERR_CONN_4711",
        "getUserById",
        "user",
        "0xDEADBEEF",
        "https://example.org/a?b=1",
        "数据库",
        "Müllers strasse",
        "indexes",
    ],
)
async def test_code_names_and_other_scripts_are_found(conversation: Conversation, asked: str) -> None:
    wanted = (
        "See app/db/messages.py:12 and https://example.org/a?b=1: getUserById raised ERR_CONN_4711 at 0xdeadbeef, "
        "数据库的索引很慢, Müllers Straße, the index"
    )
    await conversation.say(*FILLER[:20], wanted, *FILLER[20:])

    assert positions(await search(conversation, asked))[0] == 21


async def test_what_is_not_indexed_yet_is_found_as_what_is(conversation: Conversation, database_url: str) -> None:
    await conversation.say("The password of the vault is tangerine.", *FILLER)
    await conversation.database.history.index_session(conversation.session.id)
    await conversation.say("The vault moved to the basement.")

    found = await search(conversation, "where is the vault")

    assert set(positions(found)[:2]) == {1, 82}
    assert found.incomplete_sessions == ()
    assert await run_sql(database_url, "select max(through_position) from search_blocks") == [(81,)]


async def test_the_answer_beside_the_question_is_found(conversation: Conversation) -> None:
    await conversation.say(*FILLER[:40], "Which port does the staging gateway use?", "8443.", *FILLER[40:])

    assert positions(await search(conversation, "staging gateway port"))[:2] == [41, 42]


async def test_a_query_is_narrowed_down_by_what_it_says(conversation: Conversation) -> None:
    call = ToolCall(id="c1", name="grep", arguments='{"pattern": "harbour"}')
    result = NewMessage(role=Role.TOOL, content="harbour: 3", source=Source.API, tool_call_id="c1", name="grep")
    await say_all(
        conversation,
        said("The harbour is closed.", "Anna"),
        said("The harbour is open.", "Bob Lee"),
        answer_message("", tool_calls=(call,)),
        result,
    )

    assert positions(await search(conversation, "harbour author:anna")) == [1]
    assert positions(await search(conversation, 'harbour author:"bob lee"')) == [2]
    assert set(positions(await search(conversation, "harbour role:assistant"))) == {3}
    assert positions(await search(conversation, "tool:grep")) == [4]
    assert positions(await search(conversation, '"harbour is o"')) == [2]
    assert positions(await search(conversation, "harbour", only=HistoryFilter(after=1, before=3))) == [2]
    assert positions(await search(conversation, "harbour before:2001-01-01")) == []
    assert set(positions(await search(conversation, f"harbour on:{datetime.now(UTC).date()}"))) == {1, 2, 3, 4}


async def test_an_author_or_a_day_named_among_the_words_counts(conversation: Conversation) -> None:
    await say_all(
        conversation, *(said(f"I like the plan, number {n}.", "Anna" if n == 7 else "Bob") for n in range(20))
    )

    assert positions(await search(conversation, "what did Anna say about the plan"))[0] == 8
    assert len(positions(await search(conversation, str(datetime.now(UTC).date())))) == 5


async def test_words_without_meaning_are_looked_for_as_they_stand(conversation: Conversation) -> None:
    await conversation.say("To be or not to be", *FILLER)

    assert positions(await search(conversation, "or not to be")) == [1]


async def test_a_snippet_shows_the_match_and_where_it_is(conversation: Conversation) -> None:
    long = "Nothing here. " * 100 + "The anchor\nweighs 40 kilograms. " + "Nothing there. " * 100
    await conversation.say(long)

    hit = (await search(conversation, "weight anchor weigh")).hits[0]

    assert "The anchor weighs 40 kilograms." in hit.snippet
    assert [hit.snippet[start:end] for start, end in hit.highlights] == ["anchor", "weighs"]
    assert len(hit.snippet) < 300


async def test_what_recall_tools_returned_is_not_found_again(conversation: Conversation) -> None:
    call = ToolCall(id="c1", name="search_history", arguments='{"query": "beacon"}')
    result = NewMessage(
        role=Role.TOOL, content="beacon " * 9, source=Source.API, tool_call_id="c1", name="search_history"
    )
    await say_all(conversation, said("The beacon blinks."), answer_message("", tool_calls=(call,)), result)

    assert 3 not in positions(await search(conversation, "beacon"))


async def test_a_run_does_not_find_itself(conversation: Conversation) -> None:
    await conversation.say("The lantern is green.")
    claimed = await conversation.start()
    append = conversation.database.messages.append_message
    asking = await append(claimed.lease, "user", said("What colour is the lantern?"))

    found = await search(conversation, "lantern", only=HistoryFilter(before_run=asking.run_id))

    assert positions(found) == [1]


async def test_all_sessions_of_a_user_are_searched_at_once(conversation: Conversation) -> None:
    database = conversation.database
    other, foreign = await open_conversation(database), await open_conversation(database, "mallory")
    for one in (conversation, other, foreign):
        await one.say("The comet returns in May.")

    found = await database.history.search(conversation.owner_id, None, HistoryQuery("comet"))

    assert {hit.message.session_id for hit in found.hits} == {conversation.session.id, other.session.id}


async def test_a_foreign_session_is_one_that_does_not_exist(conversation: Conversation) -> None:
    await conversation.say("private")
    stranger = await conversation.database.users.get_or_create("mallory")

    for text in ("private", "", "author:anna"):
        with pytest.raises(NotFound):
            await conversation.database.history.search(stranger, conversation.session.id, HistoryQuery(text))


async def test_two_who_index_at_once_write_every_message_once(conversation: Conversation, database_url: str) -> None:
    await conversation.say("The falcon sleeps.", *FILLER)
    history = conversation.database.history

    await asyncio.gather(*(history.index_session(conversation.session.id) for _ in range(4)))

    entries = await run_sql(database_url, "select cardinality(entries) from search_terms where term = 'falcon'")
    assert entries == [(1,)]


async def test_another_language_indexes_anew(conversation: Conversation, database_url: str) -> None:
    await conversation.say("Die Häuser am Hafen", *FILLER)
    await conversation.database.history.index_session(conversation.session.id)
    german = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1, search_language="german"))

    found = await german.history.search(conversation.owner_id, conversation.session.id, HistoryQuery("Haus"))
    await german.close()

    assert positions(found)[0] == 1
    assert await run_sql(database_url, "select distinct split_part(analyzer, '-', 1) from search_blocks") == [
        ("german",)
    ]


async def test_an_erased_session_leaves_nothing_in_the_index(conversation: Conversation, database_url: str) -> None:
    await conversation.say("secret", *FILLER)
    await conversation.database.history.index_session(conversation.session.id)

    await conversation.database.sessions.delete(conversation.owner_id, conversation.session.id)

    assert await run_sql(database_url, "select count(*) from search_terms") == [(0,)]
    assert await conversation.database.history.index_session(conversation.session.id) == 0
