"""The page of the search: hits in one chat or in all, their marks and links, and what is said without any."""

import re
from dataclasses import replace

import httpx
import pytest

from fakes.api_stage import KEYED, set_stage
from fakes.conversations import Conversation, open_conversation
from throughline.api.front_end import API
from throughline.console.front_end import CONSOLE
from throughline.console.search import pieces_of
from throughline.db.database import Database
from throughline.db.reads import Reading
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.recall import HistoryQuery, Hit, SearchResult
from throughline.http.app import create_app
from throughline.openai.front_end import OPENAI_API

HOSTILE = "<script>alert(1)</script></mark>\u202eevil"


async def talk(database: Database, *texts: str, title: str = "Servers") -> tuple[Conversation, str]:
    """Return a session of anna with these messages, and the address of its page."""
    conversation = await open_conversation(database, title=title)
    await conversation.say(*texts)
    return conversation, f"/console/sessions/{conversation.session.id}"


async def test_all_chats_are_searched_with_marks_titles_and_links(database: Database, anna: httpx.AsyncClient) -> None:
    _, first = await talk(database, "Nothing here.", "The gateway port is 8443.")
    _, second = await talk(database, "Which gateway do you mean?", title="Questions")

    page = (await anna.get("/console/search", params={"q": "gateway port"})).text

    assert "The <mark>gateway</mark> <mark>port</mark> is 8443." in page
    assert f'href="{first.removeprefix("/console/")}?at=2"><bdi>Servers</bdi> #2' in page
    assert f'href="{second.removeprefix("/console/")}?at=1"><bdi>Questions</bdi> #1' in page


async def test_one_chat_is_searched_alone(database: Database, anna: httpx.AsyncClient) -> None:
    conversation, first = await talk(database, "The gateway port is 8443.")
    await talk(database, "Which gateway do you mean?", title="Questions")

    led = await anna.get("/console/search", params={"q": "gateway & co", "session": str(conversation.session.id)})
    page = (await anna.get(f"{first}/search", params={"q": "gateway"})).text

    assert led.status_code == httpx.codes.SEE_OTHER
    assert led.headers["location"] == f"./{first.removeprefix('/console/')}/search?q=gateway%20%26%20co"
    assert "?at=1" in page
    assert "Questions</bdi>" not in page


async def test_filters_in_the_query_narrow_a_search_down(database: Database, anna: httpx.AsyncClient) -> None:
    await talk(database, "The gateway port is 8443.")

    async def count(query: str) -> int:
        return (await anna.get("/console/search", params={"q": query})).text.count("?at=")

    assert await count("gateway role:user") == 1
    assert await count("gateway role:assistant") == 0
    assert await count("gateway before:2020-01-01") == 0
    assert await count('"gateway port"') == 1


async def test_a_filter_that_cannot_be_read_is_explained(anna: httpx.AsyncClient) -> None:
    page = await anna.get("/console/search", params={"q": "gateway role:king"})

    assert page.status_code == httpx.codes.OK
    assert 'role="alert"' in page.text
    assert "king" in page.text


async def test_nothing_found_and_nothing_asked_are_said(database: Database, anna: httpx.AsyncClient) -> None:
    _, session = await talk(database, "Hello")

    found = (await anna.get(f"{session}/search", params={"q": "zebra"})).text
    asked = (await anna.get("/console/search", params={"q": "  "})).text

    assert "Nothing was found. Try fewer or other words" in found
    assert "Nothing was found" not in asked


async def test_an_incomplete_search_says_what_to_do(database: Database) -> None:
    class Unfinished:
        async def search_on_replica(
            self, owner: UserId, session: SessionId | None, _query: HistoryQuery, _reading: Reading
        ) -> tuple[SearchResult, None]:
            return SearchResult((), (SessionId(session or owner),)), None

    played = set_stage(database, KEYED, dependencies={"history": Unfinished()})
    stage = replace(played, app=create_app(played.services, KEYED, (API, OPENAI_API, CONSOLE)))
    async with stage.client(key=await stage.key("anna")) as anna:
        page = (await anna.get("/console/search", params={"q": "gateway"})).text

    assert "Chats that could not be searched completely: 1." in page
    assert 'href="search?q=gateway">Search again' in page
    assert "Nothing was found yet." in page


async def test_more_hits_are_shown_on_request(database: Database, anna: httpx.AsyncClient) -> None:
    await talk(database, *(f"Gateway number {number}" for number in range(30)))

    first = (await anna.get("/console/search", params={"q": "gateway"})).text
    more = (await anna.get("/console/search", params={"q": "gateway", "more": "true"})).text

    assert first.count("?at=") == 20
    assert "more=true" in first
    assert more.count("?at=") == 30
    assert "More hits" not in more


async def test_a_hit_opens_its_message_also_where_a_summary_covers_it(
    database: Database, anna: httpx.AsyncClient
) -> None:
    conversation, session = await talk(database, *("A zebra" if n == 50 else "A horse" for n in range(1, 101)))
    await conversation.adopt((await conversation.messages())[79])

    found = (await anna.get(f"{session}/search", params={"q": "zebra"})).text
    best = re.findall(r'class="name" href="([^"]+)"', found)[0]
    page = (await anna.get(f"/console/{best}")).text

    assert re.search(r'class="message user sought" id="m50"', page)
    assert "/messages?before=38" in page
    assert "/messages?after=77" in page


async def test_later_messages_do_not_bring_the_earlier_ones_again(database: Database, anna: httpx.AsyncClient) -> None:
    _, session = await talk(database, *("A horse" for _ in range(100)))

    later = (await anna.get(f"{session}/messages", params={"after": 20})).text
    earlier = (await anna.get(f"{session}/messages", params={"before": 60})).text

    assert "/messages?before=" not in later
    assert "/messages?after=60" in later
    assert "/messages?before=20" in earlier
    assert "/messages?after=" not in earlier


async def test_hostile_texts_are_escaped(database: Database, anna: httpx.AsyncClient) -> None:
    _, session = await talk(database, f"zebra {HOSTILE}", f"zebra{'x' * 1_000_000}", title=HOSTILE)

    for address in ("/console/search", f"{session}/search"):
        page = (await anna.get(address, params={"q": f'zebra "{HOSTILE}"'})).text
        found = (await anna.get(address, params={"q": "zebra"})).text
        for text in (page, found):
            assert "<script>alert" not in text
            assert "</mark>\u202e" not in text
            assert len(text) < 50_000
        assert "<bdi>&lt;script&gt;" in found


async def test_nobody_finds_messages_of_others(database: Database, bob: httpx.AsyncClient) -> None:
    _, session = await talk(database, "The gateway port is 8443.")

    everywhere = await bob.get("/console/search", params={"q": "gateway"})
    within = await bob.get(f"{session}/search", params={"q": "gateway"})

    assert "8443" not in everywhere.text
    assert within.status_code == httpx.codes.NOT_FOUND
    assert (await bob.get("/console/search", params={"q": "a", "session": "x"})).status_code == httpx.codes.NOT_FOUND


@pytest.mark.parametrize(
    ("highlights", "parts"),
    [
        ((), [("one two", False)]),
        (((0, 3),), [("one", True), (" two", False)]),
        (((4, 7), (0, 3)), [("one", True), (" ", False), ("two", True)]),
        (((0, 5), (3, 7)), [("one t", True), ("wo", True)]),
    ],
)
async def test_the_pieces_of_a_snippet_are_the_snippet(
    database: Database, highlights: tuple[tuple[int, int], ...], parts: list[tuple[str, bool]]
) -> None:
    conversation, _ = await talk(database, "one two")
    (message,) = [one for one in await conversation.messages() if one.content == "one two"]

    assert list(pieces_of(Hit(message, 1.0, "one two", highlights))) == parts
