"""The search routes: what they return, what narrows them down, and what they refuse."""

import httpx
import pytest

from fakes.api_stage import KEYED, open_session, set_stage
from throughline.db.database import Database


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
