"""The search routes: what they return, what narrows them down, and what they refuse."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from api.test_event_stream import parse
from fakes.api_stage import KEYED, LOCAL, ApiStage, open_session, set_stage
from fakes.command_stage import TALK
from fakes.conversations import Conversation, open_conversation, user_message
from fakes.event_log import MESSAGE_ID, STREAM
from fakes.raw_sql import run_sql
from fakes.scripted_turns import Script
from fakes.slack_delivery import take
from fakes.slack_double import TEAM
from throughline.db.database import Database
from throughline.domain.events import MessageDelta, ReasoningDelta
from throughline.domain.keys import Scope
from throughline.domain.reasoning import Reasoning
from throughline.slack.store.database import slack_database
from throughline.slack.store.people import SlackId
from throughline.wire.messages import CitationOut


async def say(client: httpx.AsyncClient, session: str, text: str) -> None:
    assert (await client.post(f"{session}/messages", json={"content": text})).status_code == 200


async def test_a_session_is_searched_with_snippets_and_links(database: Database) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)
        await say(client, session, "The gateway listens on port 8443.")
        await say(client, session, "Thanks, and good night.")

        found = (await client.get(f"{session}/search", params={"q": "gateway port", "limit": 1})).json()
        linked = (await client.get(found["data"][0]["link"])).json()

    (hit,) = found["data"]
    assert (found["is_complete"], found["incomplete_sessions"], found["incomplete_session_count"]) == (True, [], 0)
    assert hit["message"]["content"] == hit["snippet"] == "The gateway listens on port 8443."
    assert [hit["snippet"][start:end] for start, end in hit["highlights"]] == ["gateway", "port"]
    assert [message["id"] for message in linked["data"]] == [hit["message"]["id"]]


async def test_parameters_narrow_a_search_down(database: Database) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)
        await say(client, session, "Hello there")
        await say(client, session, "Hello again")

        async def positions(**params: str | int) -> set[int]:
            found = await client.get(f"{session}/search", params={"q": "hello", **params})
            return {hit["message"]["position"] for hit in found.json()["data"]}

        assert await positions() == {1, 2, 3, 4}
        assert await positions(role="user") == {1, 3}
        assert await positions(after=1, before=4) == {2, 3}
        assert await positions(since="2999-01-01T00:00:00Z") == set()
        assert await positions(until="2999-01-01T00:00:00Z", author="nobody") == set()
        assert await positions(tool="grep") == set()


async def test_all_sessions_of_the_caller_are_searched_and_nobody_elses(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada")) as ada, stage.client(key=await stage.key("bob")) as bob:
        sessions = [await open_session(ada), await open_session(ada), await open_session(bob)]
        for client, session in zip((ada, ada, bob), sessions, strict=True):
            await say(client, session, "The comet returns in May.")

        found = (await ada.get("/v1/search", params={"q": "comet"})).json()

    assert {f"/v1/sessions/{hit['session_id']}" for hit in found["data"]} >= set(sessions[:2])
    assert sessions[2].rpartition("/")[2] not in str(found)


@pytest.mark.parametrize(
    "query", ["", "q=", "q=a&limit=0", "q=a&limit=51", "q=a&role=king", "q=a&since=now", "q=a&x=1"]
)
async def test_a_search_that_cannot_be_is_refused(database: Database, query: str) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)

        assert (await client.get(f"{session}/search?{query}")).status_code == 422


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("q", "vault before:yesterday", "names no day. Write the day as in `before:2026-03-14`"),
        ("q", "after:", "`after:` has no value"),
        ("q", "author:", "`author:` has no value"),
        ("q", "role:xyz", "names no role"),
        ("before", "yesterday", "Must be a position, a whole number. Write a day in the query (`before:2026-03-14`)"),
        ("after", "2026-03-14", "Must be a position, a whole number. Write a day in the query (`before:2026-03-14`)"),
        ("role", "xyz", "Must be 'user', 'assistant' or 'tool'"),
        ("author", " ", "Is blank"),
        ("tool", "", "Is blank"),
        ("since", "yesterday", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
        ("since", "1", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
        ("since", "-62135596801", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
        ("until", "253402300800", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
        ("until", "1e9", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
        ("until", "2026-03-14", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
        ("until", "2026-03-14T00:00:00", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
        ("since", "0001-01-01T00:00:00+14:00", "Must be a time with its offset: 2026-03-14T00:00:00Z"),
    ],
)
async def test_a_value_that_narrows_nothing_down_is_refused_in_words(
    database: Database, name: str, value: str, what: str
) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)
        given = {"q": "vault", name: value}
        answers = [await client.get(path, params=given) for path in ("/v1/search", f"{session}/search")]

    for answer in answers:
        assert answer.status_code == 422
        assert what in answer.json()["detail"]
        assert answer.json()["errors"][0]["field"] == name


@pytest.mark.parametrize("text", ["error: E4711", "http://gate.example/E4711", "foo:bar", "src/after:9/E4711.py"])
async def test_what_only_looks_like_a_filter_is_found_as_text(database: Database, text: str) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": f"It says {text} again"})
        found = (await client.get(f"{session}/search", params={"q": text})).json()["data"]

    assert found[0]["message"]["position"] == 1


async def test_hostile_text_is_a_search_like_any_other(database: Database) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)
        for text in ('"', "%", "\\", "'; drop table messages; --", "a\x00b", "()&|!:*<->", "x" * 1000):
            answer = await client.get(f"{session}/search", params={"q": text})
            assert answer.status_code == 200, (text, answer.text)


async def test_a_search_on_the_last_day_there_is_finds_nothing_and_does_not_break(database: Database) -> None:
    async with set_stage(database).client() as client:
        found = await client.get("/v1/search", params={"q": "x on:9999-12-31"})

    assert found.status_code == 200


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    stage = set_stage(database)
    async with stage.client() as client:
        yield client
    await stage.turns.settle()


async def walk(client: httpx.AsyncClient, path: str, **query: str | int) -> list[int]:
    """Return the positions of all pages, going on by cursor."""
    positions: list[int] = []
    asked = dict(query)
    while True:
        page = (await client.get(path, params=asked)).json()
        positions += [message["position"] for message in page["data"]]
        if page["next_cursor"] is None:
            return positions
        asked["cursor"] = page["next_cursor"]


async def test_a_cursor_continues_in_the_asked_order(client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    for _ in range(3):
        await client.post(f"{session}/messages", json={"content": "hi"})
    path = f"{session}/messages"

    assert await walk(client, path, limit=1) == [1, 2, 3, 4, 5, 6]
    assert await walk(client, path, limit=4, order="desc") == [6, 5, 4, 3, 2, 1]
    assert await walk(client, path, limit=2, after=1, before=6) == [2, 3, 4, 5]
    assert await walk(client, path, limit=2, after=1, before=6, order="desc") == [5, 4, 3, 2]


async def test_a_cursor_that_is_none_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    session = await open_session(client)

    for cursor in ("", "x", "-1", "9" * 30):
        with subtests.test(cursor):
            response = await client.get(f"{session}/messages", params={"cursor": cursor})
            assert response.status_code == 422
            assert response.json()["errors"][0]["field"] == "cursor"


ANSWER = '😀 You said "the harbour" [#1] and "the sea" [#1], see [#1-#2] and [#9].'


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


@pytest.fixture
async def talk(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.fixture
async def client_cited(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client(key=await stage.key("anna")) as client_cited:
        yield client_cited


async def ask(talk: Conversation, text: str, answer: str) -> None:
    claimed = await talk.start(text)
    await talk.database.messages.append_message(claimed.lease, "user", user_message(text))
    await talk.end(claimed.lease, answer)


def shown(text: str, item: dict[str, list[object]]) -> list[tuple[str, int, int, str]]:
    """Return the citations of an item: the text in their range, the positions and the status."""
    found = [CitationOut.model_validate(one) for one in item["citations"]]
    return [(text[one.start : one.end], one.from_position, one.to_position, one.status) for one in found]


async def test_an_answer_in_the_history_has_its_citations(client_cited: httpx.AsyncClient, talk: Conversation) -> None:
    await ask(talk, "I saw the harbour, like [#7].", ANSWER)
    path = f"/v1/sessions/{talk.session.id}/messages"

    page = (await client_cited.get(path)).json()
    backwards = (await client_cited.get(path, params={"order": "desc", "limit": 1})).json()

    assert page["data"][0]["citations"] == []
    assert shown(ANSWER, page["data"][1]) == [
        ("#1", 1, 1, "valid"),
        ("#1", 1, 1, "quotation_not_found"),
        ("#1-#2", 1, 2, "valid"),
        ("#9", 9, 9, "no_such_message"),
    ]
    assert {one["session_id"] for one in page["data"][1]["citations"]} == {str(talk.session.id)}
    assert backwards["data"] == [page["data"][1]]
    assert page["next_cursor"] is None


async def test_a_version_of_a_summary_has_its_citations(client_cited: httpx.AsyncClient, talk: Conversation) -> None:
    (message,) = await talk.say("the harbour")
    text = '"the harbour" [#1], "the sea" [#1-#1] [#1-#3]'
    await talk.adopt(message, text)
    path = f"/v1/sessions/{talk.session.id}/summaries"

    listed = (await client_cited.get(path)).json()
    single = (await client_cited.get(f"{path}/1")).json()

    assert [status for *_, status in shown(text, single)] == ["valid", "valid", "no_such_message"]
    assert listed == {"data": [single], "next_cursor": None}


async def test_at_most_fifty_citations_of_a_text_are_returned(
    client_cited: httpx.AsyncClient, talk: Conversation
) -> None:
    await ask(talk, "hi", "[#1] " * 60)

    page = (await client_cited.get(f"/v1/sessions/{talk.session.id}/messages")).json()

    assert len(page["data"][1]["citations"]) == 50


async def test_participants_see_no_more_of_the_owner_than_the_shared_session(
    stage: ApiStage, database_url: str
) -> None:
    database, links = stage.database, slack_database(stage.database, "assistant").links
    for slack_user, name in (("U0ANNA001", "anna"), ("U0BERT001", "bert")):
        user = await database.users.get_or_create(name)
        await links.link_by_code(SlackId(TEAM, slack_user), await links.new_code(user))
    shared = await take(database, "hello", channel="C0GENERAL", user="U0ANNA001")
    await take(database, "me too", channel="C0GENERAL", user="U0BERT001", thread=True)
    private = await open_conversation(database, "anna")
    other = await open_conversation(database, f"slack:{TEAM}:C0GENERAL")
    assert other.owner_id == await database.messages.find_owner(shared)
    text = f"[#1] [#1 in session {private.session.id}] [#1 in session {other.session.id}]"
    for session in (private.session.id, other.session.id):
        await run_sql(database_url, TALK, session, 2, "{}")
    await run_sql(database_url, TALK, shared, 2, f'{{"2": "{text}"}}')

    found = {}
    for name in ("anna", "bert"):
        async with stage.client(key=await stage.key(name)) as client_cited:
            page = (await client_cited.get(f"/v1/sessions/{shared}/messages")).json()
        found[name] = [one["status"] for one in page["data"][1]["citations"]]

    assert found == {
        "anna": ["valid", "valid", "no_such_message"],
        "bert": ["valid", "no_such_message", "no_such_message"],
    }


THOUGHT = "They greet me.\u2028I greet back."
TOLD = (ReasoningDelta(MESSAGE_ID, THOUGHT), MessageDelta(MESSAGE_ID, "Hello."))


def scripts(stage: ApiStage, *, is_shown: bool) -> ApiStage:
    stage.turns.scripts = [Script(TOLD, "Hello.", Reasoning(THOUGHT, is_shown=is_shown))]
    return stage


async def reasoning_of(client: httpx.AsyncClient, session: str, query: str) -> list[object]:
    response = await client.get(f"{session}/messages{query}")
    assert response.status_code == 200, response.text
    return [message["reasoning"] for message in response.json()["data"]]


async def test_the_history_has_it_only_where_it_is_asked_for(database: Database) -> None:
    async with scripts(set_stage(database), is_shown=True).client() as client:
        session = await open_session(client)
        answered = (await client.post(f"{session}/messages", json={"content": "hi"})).json()

        assert await reasoning_of(client, session, "") == [None, None]
        assert await reasoning_of(client, session, "?include=reasoning") == [None, THOUGHT]
        assert await reasoning_of(client, session, "?include=reasoning&order=desc&limit=1") == [THOUGHT]
        assert (await client.get(f"{session}/messages?include=all")).status_code == 422
        assert "reasoning" not in answered["message"]


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [((Scope.READ, Scope.WRITE), None), ((Scope.READ, Scope.WRITE, Scope.OPERATE), THOUGHT)],
)
async def test_hidden_reasoning_is_for_operators(
    database: Database, scopes: tuple[Scope, ...], expected: str | None
) -> None:
    stage = scripts(set_stage(database, KEYED), is_shown=False)
    async with stage.client(key=await stage.key("ada", *scopes)) as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": "hi"})

        assert await reasoning_of(client, session, "?include=reasoning") == [None, expected]
        assert THOUGHT not in (await client.get(f"{session}/export")).text


async def test_the_stream_has_it_before_the_text(database: Database) -> None:
    stage = scripts(set_stage(database, LOCAL), is_shown=True)
    async with stage.served() as client:
        session = await open_session(client)
        response = await client.post(f"{session}/messages", json={"content": "hi"}, headers=STREAM)
        await stage.turns.settle()

    seen = parse(response.text)
    assert [event.type for event in seen] == [
        "run.started",
        "reasoning.delta",
        "message.delta",
        "message.completed",
        "run.completed",
    ]
    assert seen[1].data == {"message_id": str(MESSAGE_ID), "text": THOUGHT}


async def test_an_export_has_it_and_an_import_takes_it_over(database: Database) -> None:
    async with scripts(set_stage(database), is_shown=True).client() as client:
        session = await open_session(client)
        await client.post(f"{session}/messages", json={"content": "hi"})
        exported = (await client.get(f"{session}/export")).content
        headers = {"Content-Type": "application/x-ndjson"}
        imported = await client.post("/v1/sessions/import", content=exported, headers=headers)

        lines = [json.loads(line) for line in exported.split(b"\n")[1:] if line]
        assert [line.get("reasoning", "none") for line in lines] == ["none", THOUGHT]
        assert await reasoning_of(client, imported.headers["Location"], "?include=reasoning") == [None, THOUGHT]
