"""Looking at the plan, pinning, and the versions of the summary, over the wire."""

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, open_session, set_stage
from fakes.conversations import Conversation
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.domain.events import HistoryQuoted
from throughline.domain.keys import Scope
from throughline.domain.message import ImageBlock, TextBlock
from throughline.wire.sessions import SummaryList, SummaryVersionOut

PREVIEW_JSON = {
    "action": "compact",
    "cause": "threshold",
    "fired": ["pruned"],
    "tokens": 6_900,
    "unreduced_tokens": 6_900,
    "window": 8_192,
    "usage_percent": 84.2,
    "threshold_tokens": 5_836,
    "budget_tokens": 6_144,
    "floor_too_high": False,
    "summarised_through": 0,
    "summarise": {"from_position": 1, "through_position": 2, "message_count": 2},
    "messages": [
        {
            "position": 1,
            "role": "user",
            "form": "summarised",
            "reason": "the summary stands for it",
            "tokens": 0,
            "pinned": False,
            "score": None,
        },
        {
            "position": 3,
            "role": "user",
            "form": "whole",
            "reason": "pinned: always shown",
            "tokens": 70,
            "pinned": True,
            "score": None,
        },
    ],
    "min_score_threshold": None,
    "quoted": [],
}


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client() as client:
        yield client


async def answered(client: httpx.AsyncClient) -> tuple[str, list[str]]:
    """Open a session, send a message, and return the session's path and the ids of its two messages."""
    session = await open_session(client)
    await client.post(f"{session}/messages", json={"content": "hi"})
    return session, [item["id"] for item in (await client.get(f"{session}/messages")).json()["data"]]


async def test_a_preview_shows_the_plan_for_a_text_for_blocks_and_for_nothing(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = f"{await open_session(client)}/context/preview"
    image = "https://example.org/a.png"

    shown = [
        await client.post(path),
        await client.post(path, json={}),
        await client.post(path, json={"content": None}),
        await client.post(path, json={"content": "What next?"}),
        await client.post(path, json={"content": [{"type": "text", "text": "See"}, {"type": "image", "url": image}]}),
    ]

    assert [response.status_code for response in shown] == [200] * 5
    assert all(response.json() == PREVIEW_JSON for response in shown)
    assert stage.pins.previewed == [None, None, None, "What next?", (TextBlock("See"), ImageBlock(image, "auto"))]


async def test_a_preview_needs_only_a_key_that_reads_and_a_pin_one_that_writes(database: Database) -> None:
    stage = set_stage(database, KEYED)
    async with stage.client(key=await stage.key("ada")) as writer:
        session, (message, _) = await answered(writer)
    async with stage.client(key=await stage.key("ada", Scope.READ)) as reader:
        preview = await reader.post(f"{session}/context/preview")
        pin = await reader.put(f"{session}/messages/{message}/pin")
        unpin = await reader.delete(f"{session}/messages/{message}/pin")

    assert (preview.status_code, pin.status_code, unpin.status_code) == (200, 403, 403)


async def test_a_pin_is_answered_with_the_whole_group_and_taken_off_in_silence(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    session, (message, _) = await answered(client)

    pinned = await client.put(f"{session}/messages/{message}/pin")
    again = await client.put(f"{session}/messages/{message}/pin")
    unpinned = await client.delete(f"{session}/messages/{message}/pin")
    never = await client.delete(f"{session}/messages/{message}/pin")

    assert (pinned.status_code, again.status_code) == (200, 200)
    assert [(item["id"], item["pinned"]) for item in pinned.json()["data"]] == [(message, True)]
    assert (unpinned.status_code, unpinned.content, never.status_code) == (204, b"", 204)
    assert stage.pins.pinned == set()


async def test_too_much_pinned_is_a_problem_that_says_what_to_do(stage: ApiStage, client: httpx.AsyncClient) -> None:
    session, (first, second) = await answered(client)
    stage.pins.limit = 1
    await client.put(f"{session}/messages/{first}/pin")

    refused = await client.put(f"{session}/messages/{second}/pin")

    assert refused.status_code == 422
    assert refused.json()["type"] == "/problems/invalid_input"
    assert "Take a pin off first" in refused.json()["detail"]


async def conversation_at(stage: ApiStage, path: str) -> Conversation:
    owner_id = await stage.database.users.get_or_create("local")
    session = await stage.database.sessions.get(owner_id, SessionId(UUID(path.rpartition("/")[2])))
    return Conversation(stage.database, owner_id, session)


async def test_a_prepared_summary_is_listed_first_without_number_and_cannot_be_restored(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = await open_session(client)
    conversation = await conversation_at(stage, path)
    stored = await conversation.say(*"abcdef")
    await conversation.adopt(stored[1], "in use")
    await conversation.prepare(stored[3], "ahead")

    listed = await client.get(f"{path}/summaries")
    prepared, adopted = listed.json()["data"]
    refused = await client.post(f"{path}/summaries/{prepared['id']}/restore")

    SummaryList.model_validate(listed.json())
    keys = ("version", "state", "text", "stretches", "through_position")
    assert [prepared[key] for key in keys] == [None, "prepared", "ahead", 1, 4]
    assert [adopted[key] for key in keys] == [1, "adopted", "in use", 1, 2]
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid_input")


async def test_a_version_is_gone_back_to_by_its_id_or_its_number(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await open_session(client)
    conversation = await conversation_at(stage, path)
    stored = await conversation.say(*"abcdef")
    await conversation.adopt(stored[1], "first")
    await conversation.adopt(stored[3], "second")

    by_number = await client.post(f"{path}/summaries/1/restore")
    second = (await client.get(f"{path}/summaries")).json()["data"][1]
    by_id = await client.post(f"{path}/summaries/{second['id']}/restore")
    unknown = [await client.post(f"{path}/summaries/{number}/restore") for number in (9, 999999999, 10**20, "v1")]

    assert (by_number.status_code, by_number.json()["summarized_count"]) == (200, 2)
    assert (by_id.status_code, by_id.json()["summarized_count"]) == (200, 4)
    assert {answer.status_code for answer in unknown} == {404}
    assert "There is no version 9 of the summary of session" in unknown[0].json()["detail"]


async def test_the_first_summary_can_be_undone(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await open_session(client)
    conversation = await conversation_at(stage, path)
    stored = await conversation.say(*"abcd")
    await conversation.adopt(stored[1], "first")
    await conversation.prepare(stored[3], "ahead")

    back = [await client.post(f"{path}/summaries/0/restore") for _ in range(2)]
    context = (await client.get(f"{path}/context")).json()
    kept = (await client.get(f"{path}/summaries")).json()["data"]
    again = await client.post(f"{path}/summaries/1/restore")

    assert [(answer.status_code, answer.json()["summarized_count"]) for answer in back] == [(200, 0)] * 2
    assert (context["summary"], context["prepared"], context["summary_tokens"]) == (None, None, 0)
    assert [(version["version"], version["state"]) for version in kept] == [(1, "superseded")]
    assert again.json()["summarized_count"] == 2


async def test_a_version_is_read_and_going_back_twice_changes_nothing_more(
    stage: ApiStage, client: httpx.AsyncClient
) -> None:
    path = await open_session(client)
    conversation = await conversation_at(stage, path)
    stored = await conversation.say(*"abcdef")
    await conversation.adopt(stored[1], "first")
    await conversation.adopt(stored[3], "second")

    shown = await client.get(f"{path}/summaries/1")
    by_id = await client.get(f"{path}/summaries/{shown.json()['id']}")
    unknown = [await client.get(f"{path}/summaries/{name}") for name in (9, "x", UUID(int=9))]
    back = [await client.post(f"{path}/summaries/1/restore") for _ in range(3)]

    SummaryVersionOut.model_validate(shown.json())
    assert (shown.json()["text"], by_id.json()) == ("first", shown.json())
    assert {answer.status_code for answer in unknown} == {404}
    assert {answer.json()["summarized_count"] for answer in back} == {2}
    assert [version["version"] for version in (await client.get(f"{path}/summaries")).json()["data"]] == [3, 2, 1]


async def test_versions_come_in_pages_the_prepared_one_on_the_first(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await open_session(client)
    conversation = await conversation_at(stage, path)
    stored = await conversation.say(*"abcdef")
    for message in stored[:4]:
        await conversation.adopt(message, "in use")
    await conversation.prepare(stored[5], "ahead")

    pages = [(await client.get(f"{path}/summaries", params={"limit": 1})).json()]
    while pages[-1]["next_cursor"]:
        query = {"limit": 2, "cursor": pages[-1]["next_cursor"]}
        pages.append((await client.get(f"{path}/summaries", params=query)).json())
    whole = (await client.get(f"{path}/summaries", params={"limit": 5})).json()

    assert [[item["version"] for item in page["data"]] for page in pages] == [[None], [4, 3], [2, 1]]
    assert (whole["data"], whole["next_cursor"]) == ([item for page in pages for item in page["data"]], None)


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "cursor=x", "cursor=0", "before=3", "limit=1&order=desc"])
async def test_a_page_of_versions_that_cannot_be_asked_for_is_refused(client: httpx.AsyncClient, query: str) -> None:
    refused = await client.get(f"{await open_session(client)}/summaries?{query}")

    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid_input")


async def test_a_session_without_a_summary_has_one_empty_page(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{await open_session(client)}/summaries")).json() == {"data": [], "next_cursor": None}


async def test_the_document_tells_how_versions_are_paged(client: httpx.AsyncClient) -> None:
    route = (await client.get("/openapi.json")).json()["paths"]["/v1/sessions/{session_id}/summaries"]["get"]

    assert {item.get("name") for item in route["parameters"]} >= {"session_id", "limit", "cursor"}


async def test_the_context_tells_what_the_last_turn_quoted(stage: ApiStage, client: httpx.AsyncClient) -> None:
    path = await open_session(client)
    before = (await client.get(f"{path}/context")).json()
    stage.pins.report = replace(stage.pins.report, quoted=HistoryQuoted((21, 4), (1.0, 0.52), 104))

    after = (await client.get(f"{path}/context")).json()

    assert before["quoted"] is None
    assert after["quoted"] == {"positions": [21, 4], "scores": [1.0, 0.52], "tokens": 104}
