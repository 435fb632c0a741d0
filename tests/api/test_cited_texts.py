"""Citations of answers and summaries, as the routes return them."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, set_stage
from fakes.command_stage import TALK
from fakes.conversations import Conversation, open_conversation, user_message
from fakes.raw_sql import run_sql
from fakes.slack_double import TEAM
from fakes.slack_inbox import take
from throughline.db.database import Database
from throughline.db.slack.people import SlackId
from throughline.wire.messages import CitationOut

ANSWER = '😀 You said "the harbour" [#1] and "the sea" [#1], see [#1-#2] and [#9].'


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database, KEYED)


@pytest.fixture
async def talk(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client(key=await stage.key("anna")) as client:
        yield client


async def ask(talk: Conversation, text: str, answer: str) -> None:
    claimed = await talk.start(text)
    await talk.database.messages.append_message(claimed.lease, "user", user_message(text))
    await talk.end(claimed.lease, answer)


def shown(text: str, item: dict[str, list[object]]) -> list[tuple[str, int, int, str]]:
    """Return the citations of an item: the text in their range, the positions and the status."""
    found = [CitationOut.model_validate(one) for one in item["citations"]]
    return [(text[one.start : one.end], one.from_position, one.to_position, one.status) for one in found]


async def test_an_answer_in_the_history_has_its_citations(client: httpx.AsyncClient, talk: Conversation) -> None:
    await ask(talk, "I saw the harbour, like [#7].", ANSWER)
    path = f"/v1/sessions/{talk.session.id}/messages"

    page = (await client.get(path)).json()
    backwards = (await client.get(path, params={"order": "desc", "limit": 1})).json()

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


async def test_a_version_of_a_summary_has_its_citations(client: httpx.AsyncClient, talk: Conversation) -> None:
    (message,) = await talk.say("the harbour")
    text = '"the harbour" [#1], "the sea" [#1-#1] [#1-#3]'
    await talk.adopt(message, text)
    path = f"/v1/sessions/{talk.session.id}/summaries"

    listed = (await client.get(path)).json()
    single = (await client.get(f"{path}/1")).json()

    assert [status for *_, status in shown(text, single)] == ["valid", "valid", "no_such_message"]
    assert listed == {"data": [single], "next_cursor": None}


async def test_at_most_fifty_citations_of_a_text_are_returned(client: httpx.AsyncClient, talk: Conversation) -> None:
    await ask(talk, "hi", "[#1] " * 60)

    page = (await client.get(f"/v1/sessions/{talk.session.id}/messages")).json()

    assert len(page["data"][1]["citations"]) == 50


async def test_participants_see_no_more_of_the_owner_than_the_shared_session(
    stage: ApiStage, database_url: str
) -> None:
    database, links = stage.database, stage.database.open_slack("assistant").links
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
        async with stage.client(key=await stage.key(name)) as client:
            page = (await client.get(f"/v1/sessions/{shared}/messages")).json()
        found[name] = [one["status"] for one in page["data"][1]["citations"]]

    assert found == {
        "anna": ["valid", "valid", "no_such_message"],
        "bert": ["valid", "no_such_message", "no_such_message"],
    }
