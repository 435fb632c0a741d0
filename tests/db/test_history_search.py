"""History search: what is found, how it is ranked and narrowed down, and that nobody finds what is not theirs."""

import asyncio
from datetime import UTC, datetime

import pytest

from fakes.conversations import Conversation, answer_message, open_conversation
from fakes.event_log import MESSAGE_ID
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import ExplainedTransactions, nodes_of, run_sql
from throughline.db.connection.address import parse_address
from throughline.db.connection.pool import ConnectionPool, PoolConfig, statement
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.search.analyzer import Analyzer
from throughline.db.search.query import ReadQuery, read_plain, read_query
from throughline.db.search.repository import SearchRepository
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import InvalidInput, NotFound
from throughline.domain.events import MessageDelta, NewEvent
from throughline.domain.message import Content, ImageBlock, Message, NewMessage, Role, Source, ToolCall
from throughline.domain.recall import HistoryFilter, HistoryQuery, SearchResult

FILLER = tuple(f"Chatter about nothing in particular, line {number}." for number in range(80))


async def search(
    conversation: Conversation, text: str, *, limit: int = 5, only: HistoryFilter | None = None
) -> SearchResult:
    query = HistoryQuery(text, limit, only or HistoryFilter())
    return await conversation.database.history.search(conversation.owner_id, conversation.session.id, query)


def positions(found: SearchResult) -> list[int]:
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


async def test_another_language_indexes_again(conversation: Conversation, database_url: str) -> None:
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


ANALYZER = Analyzer("english")


def read(text: str) -> ReadQuery:
    return read_query(ANALYZER, text, HistoryFilter(), author_weight=0.5)


def test_words_that_only_ask_count_less_in_a_question_and_as_much_in_other_text() -> None:
    assert read("What did Ana say about paint?").terms["paint"] == 1.0
    assert [read("What did Ana say about paint?").terms[word] for word in ("what", "say", "about")] == [0.4] * 3
    assert read("say what").terms["say"] == read("say what").terms["what"] == 1.0


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("What did we say about the printer?", "printer"),
        ("Was haben wir zum Drucker gesagt?", "drucker"),
        ("Was hatten wir zu Drucker besprochen?", "drucker"),
        ("¿Qué hemos dicho de la impresora?", "impresora"),
        ("Qu'avons-nous dit sur imprimante ?", "imprimante"),
    ],
)
def test_a_question_before_a_turn_is_looked_up_by_its_subject_alone(question: str, subject: str) -> None:
    stop_words = {"what", "was", "qué", "about"}

    words = read_plain(ANALYZER, question, HistoryFilter(), author_weight=0.5).words

    assert words - stop_words == {ANALYZER.word(subject)}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("vault before:yesterday", "`before:yesterday` names no day. Write the day as in `before:2026-03-14`"),
        ("after:2026-02-30", "`after:2026-02-30` names no day"),
        ("vault after:", "`after:` has no value. Write the day as in `after:2026-03-14`"),
        ("on:click", "`on:click` names no day"),
        ("author: anna", "`author:` has no value. Write for example `author:anna`"),
        ('author:"  "', "has no value"),
        ("role:xyz vault", "`role:xyz` names no role. Write `role:user`, `role:assistant` or `role:tool`"),
        ("tool:", "`tool:` has no value"),
        (f"role:{'x' * 900}", "…` names no role"),
    ],
)
def test_a_value_that_cannot_narrow_the_search_down_is_refused_with_what_to_write(text: str, what: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)

    assert what in caught.value.detail
    assert "in double quotes" in caught.value.detail
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("error: disk full", "error"),
        ("http://example.org/a?b=1", "http://example.org/a"),
        ("foo:bar", "foo:bar"),
        ("std::before:x", "std::before:x"),
        ("app/db/after:12", "app/db/after:12"),
        ('"on:click"', "on:click"),
        ('see "what came before: nothing"', "see"),
        ("(role:king)", "role:king"),
    ],
)
def test_text_with_colons_that_narrows_nothing_down_is_looked_for(text: str, term: str) -> None:
    found = read(text)

    assert term in found.words
    assert (found.only.role, found.only.since, found.only.until) == (None, None, None)


def test_all_six_names_narrow_the_search_down() -> None:
    found = read('vault role:USER author:"anna lee" tool:grep after:2026-03-01 before:2026-04-01')

    assert found.words == {"vault"}
    assert found.only == HistoryFilter(
        role=Role.USER,
        author="anna lee",
        tool="grep",
        since=datetime(2026, 3, 1, tzinfo=UTC),
        until=datetime(2026, 4, 1, tzinfo=UTC),
    )


def test_on_the_last_day_there_is_no_day_ends_the_search() -> None:
    assert read("on:9999-12-31").only == HistoryFilter(since=datetime(9999, 12, 31, tzinfo=UTC))


FILL = """
    with own as (
        insert into sessions (id, owner_id, agent, source)
        select gen_random_uuid(), $1, 'assistant', 'api' from generate_series(1, 200) returning id
    )
    insert into messages (id, session_id, position, role, content, source)
    select gen_random_uuid(), own.id, p, 'user', 'The kestrel hovers over the field, message ' || p, 'api'
    from own, generate_series(1, 3) p
"""
COUNT = "update sessions s set message_count = (select count(*) from messages m where m.session_id = s.id)"


@pytest.mark.parametrize("statistics", ["", "analyze"])
async def test_a_search_of_many_sessions_reads_only_their_terms_once(
    database: Database, database_url: str, statistics: str
) -> None:
    conversation = await open_conversation(database)
    await run_sql(database_url, FILL, conversation.owner_id)
    await run_sql(database_url, COUNT)
    await database.history.index_owner(conversation.owner_id)
    await run_sql(database_url, statistics or "select 1")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "scored as")
    history = SearchRepository(transactions, database.messages, database.jobs, "english")

    await history.search(conversation.owner_id, None, HistoryQuery("where does the kestrel hover"))
    await pool.close()

    nodes = list(nodes_of(transactions.plan))
    assert {node["Actual Loops"] for node in nodes if node["Node Type"] == "Aggregate"} == {1}
    assert [node["Node Type"] for node in nodes if node.get("Relation Name") == "search_terms"] == ["Index Scan"]


@pytest.mark.parametrize(("is_one_session", "prepared"), [(True, 1), (False, 0)])
async def test_only_a_search_of_one_session_keeps_its_plan(
    database: Database, database_url: str, *, is_one_session: bool, prepared: int
) -> None:
    conversation = await open_conversation(database)
    await conversation.say("The kestrel hovers over the field.")
    pool = ConnectionPool(parse_address(database_url), PoolConfig(1, 5.0))
    transactions = Transactions(pool)
    history = SearchRepository(transactions, database.messages, database.jobs, "english")

    session_id = conversation.session.id if is_one_session else None
    for _ in range(2):
        found = await history.search(conversation.owner_id, session_id, HistoryQuery("where does the kestrel hover"))
        assert len(found.hits) == 1
    kept = await transactions.fetch(
        statement("select 1 from pg_prepared_statements where statement like '%sco' || 'red as%'")
    )
    await pool.close()

    assert len(kept) == prepared


MB = 1_000_000
IMAGE = (ImageBlock("data:image/png;base64," + "A" * 3 * MB),)
CONTENTS: tuple[Content, ...] = ("x" * 9 * MB, "ü" * 3 * MB, "y" * 3 * MB, "z", IMAGE, IMAGE, IMAGE, "w")


async def test_a_page_of_the_history_stops_at_8_megabytes_and_the_cursor_goes_on(conversation: Conversation) -> None:
    claimed = await conversation.start()
    for step, content in enumerate(CONTENTS):
        message = NewMessage(role=Role.USER, content=content, source=Source.API)
        await conversation.database.messages.append_message(claimed.lease, f"{step}", message)
    pages: list[int] = []
    seen: list[MessageId] = []
    after = 0

    while True:
        query = MessageQuery(after=after, limit=200)
        page = await conversation.database.messages.list_messages(conversation.owner_id, conversation.session.id, query)
        pages.append(len(page.items))
        seen += [message.id for message in page.items]
        if page.next_cursor is None:
            break
        after = int(page.next_cursor)

    assert pages == [1, 2, 4, 1]
    assert seen == [message.id for message in await conversation.messages()]


async def test_a_page_of_events_stops_at_8_megabytes(conversation: Conversation) -> None:
    claimed = await conversation.start()
    for seq in range(1, 5):
        event = NewEvent(seq, MessageDelta(MESSAGE_ID, "x" * 3 * MB))
        await conversation.database.events.append_events(claimed.lease, [event])
    events = conversation.database.events

    first = await events.read_events(claimed.run.id, 0)
    second = await events.read_events(claimed.run.id, first[-1].seq)

    assert [[event.seq for event in page] for page in (first, second)] == [[1, 2, 3], [4]]


async def test_a_step_that_only_calls_is_no_short_message(database: Database) -> None:
    conversation = await open_conversation(database)
    await conversation.say("The lighthouse keeper has a dog, two cats and a boat, which is red, old and seldom in use.")
    claimed = await conversation.start()
    call = ToolCall(id="c1", name="grep", arguments='{"pattern": "lighthouse keeper"}')
    step = NewMessage(role=Role.ASSISTANT, content="", source=Source.API, tool_calls=(call,))
    await database.messages.append_message(claimed.lease, "step:1", step)
    await conversation.end(claimed.lease)

    found = await database.history.search(
        conversation.owner_id, conversation.session.id, HistoryQuery("lighthouse keeper")
    )

    assert found.hits[0].message.tool_calls == (call,)
