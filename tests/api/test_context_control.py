"""Looking at the plan, pinning, and the versions of the summary, over the wire."""

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from fakes.api_stage import KEYED, ApiStage, open_session, set_stage
from fakes.conversations import Conversation
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import SettingInvalid
from throughline.domain.events import HistoryQuoted, MemoriesQuoted
from throughline.domain.keys import TOKEN_PREFIX, Scope
from throughline.domain.message import ImageBlock, TextBlock
from throughline.domain.prompt import Usage
from throughline.domain.usage_report import CallPurpose, ModelCall, Payer
from throughline.settings import read_settings
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
    "quoted_memories": [],
}


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
    keys = ("version", "state", "text", "segments", "through_position")
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
    history, memories = HistoryQuoted((21, 4), (1.0, 0.52), 104), MemoriesQuoted((str(UUID(int=1)),), 64)
    stage.pins.report = replace(stage.pins.report, quoted=history, quoted_memories=memories)

    after = (await client.get(f"{path}/context")).json()

    assert before["quoted"] is before["quoted_memories"] is None
    assert after["quoted"] == {"positions": [21, 4], "scores": [1.0, 0.52], "tokens": 104}
    assert after["quoted_memories"] == {"memory_ids": [str(UUID(int=1))], "tokens": 64}


PRICED = ModelCall("openai:gpt-4o", CallPurpose.ANSWER, Usage(1000, 100, 400, cost_usd=Decimal("0.0030")))
UNPRICED = ModelCall("local", CallPurpose.SUMMARY, Usage(10, 5))


@pytest.fixture
async def keyed(database: Database) -> ApiStage:
    for name in ("ada", "bob"):
        owner_id = await database.users.get_or_create(name)
        await database.usage.store_calls(Payer(owner_id, agent="helper"), [PRICED, UNPRICED])
    return set_stage(database, KEYED)


async def test_the_caller_reads_their_own_usage_in_the_groups_asked_for(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.READ)) as client:
        by_model = (await client.get("/v1/usage", params={"group_by": "model, purpose"})).json()
        by_user = (await client.get("/v1/usage", params={"group_by": "user"})).json()
        in_all = (await client.get("/v1/usage", params={"group_by": "none"})).json()
        by_day = (await client.get("/v1/usage")).json()

    assert by_model["data"][0] == {
        "group": {"model": "openai:gpt-4o", "purpose": "answer"},
        "calls": 1,
        "unpriced_calls": 0,
        "input_tokens": 1000,
        "output_tokens": 100,
        "cached_tokens": 400,
        "cache_write_tokens": None,
        "reasoning_tokens": None,
        "cost_usd": 0.003,
    }
    assert by_model["data"][1]["cost_usd"] is None
    assert [(group["group"], group["calls"]) for group in by_user["data"]] == [({"user": "ada"}, 2)]
    assert [(group["group"], group["unpriced_calls"]) for group in in_all["data"]] == [({}, 1)]
    assert list(by_day["data"][0]["group"]) == ["day"]
    assert by_day["since"] < by_day["until"]


async def test_only_operators_read_the_usage_of_all_users(keyed: ApiStage) -> None:
    query = {"group_by": "user", "all_users": "true"}
    async with keyed.client(key=await keyed.key("ada", Scope.READ, Scope.OPERATE)) as operator:
        found = (await operator.get("/v1/usage", params=query)).json()
    async with keyed.client(key=await keyed.key("bob", Scope.READ, Scope.WRITE, Scope.ACT_AS)) as client:
        refused = await client.get("/v1/usage", params=query)
        other = await client.get("/v1/usage", params={"group_by": "user"}, headers={"On-Behalf-Of": "ada"})

    assert [group["group"]["user"] for group in found["data"]] == ["ada", "bob"]
    assert (refused.status_code, "scope `operate`" in refused.json()["detail"]) == (403, True)
    assert [group["group"]["user"] for group in other.json()["data"]] == ["ada"]


async def test_days_are_counted_back_from_the_day_before_a_midnight(keyed: ApiStage) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.READ)) as client:
        one = (await client.get("/v1/usage?days=1&until=2026-03-02T00:00:00Z")).json()
        two = (await client.get("/v1/usage?days=2&until=2026-03-02T10:00:00Z")).json()

    assert one["since"] == two["since"] == "2026-03-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("group_by=month", "Must be none, or some of day, user, agent, model, purpose, each once"),
        ("group_by=day,day", "each once"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "Must be before `until`, 2026-01-01T00:00:00+00:00."),
        ("until=0001-01-01T00:00:00Z", "Must be before `until`"),
        ("group_by=", "Must be none"),
        ("days=0", "Must be 1 or more"),
        ("since=yesterday", "Must be a time with its offset"),
        ("all_users=perhaps", "Must be true or false"),
        ("user=bob", "This field does not exist"),
    ],
)
async def test_a_report_that_cannot_be_is_refused(keyed: ApiStage, query: str, said: str) -> None:
    async with keyed.client(key=await keyed.key("ada", Scope.READ, Scope.OPERATE)) as client:
        refused: httpx.Response = await client.get(f"/v1/usage?{query}")

    assert refused.status_code == 422
    assert said in refused.text


@pytest.fixture(autouse=True)
def _no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("key", ["x", "k" * 23])
def test_a_short_bootstrap_key_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", key)

    with pytest.raises(SettingInvalid, match=r"BOOTSTRAP_API_KEY: .*24 characters") as refused:
        read_settings()

    assert "k" * 23 not in refused.value.detail


@pytest.mark.parametrize("key", [" " * 30, "é" * 30, "k" * 30 + "\n", "hidden word " * 3])
def test_a_bootstrap_key_that_no_client_could_send_is_refused_and_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", key)

    with pytest.raises(
        SettingInvalid, match="BOOTSTRAP_API_KEY: clients cannot send this key in a header: use ASCII letters"
    ) as refused:
        read_settings()

    assert "hidden" not in refused.value.detail


def test_a_bootstrap_key_that_looks_like_an_access_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", f"{TOKEN_PREFIX}{'k' * 24}")

    with pytest.raises(SettingInvalid, match="BOOTSTRAP_API_KEY: a key does not begin with tlt_"):
        read_settings()


@pytest.mark.parametrize("key", ["", "k" * 24])
def test_no_bootstrap_key_or_a_long_one_is_taken(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_API_KEY", key)

    assert read_settings().bootstrap_api_key == key


@pytest.mark.parametrize(
    ("written", "origins"),
    [
        ("", ()),
        ("[]", ()),
        ("http://a", ("http://a",)),
        ("http://a, https://b:8443,", ("http://a", "https://b:8443")),
        ('["http://a", "http://b"]', ("http://a", "http://b")),
        ("HTTPS://App.Example:443/", ("https://app.example",)),
        ("http://[::1]:80,capacitor://localhost", ("http://[::1]", "capacitor://localhost")),
        ("*", ("*",)),
    ],
)
def test_origins_are_taken_as_a_list_with_commas_or_as_json(
    written: str, origins: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORS_ORIGINS", written)

    assert read_settings().cors_origins == origins


@pytest.mark.parametrize(
    "origin", ["nonsense", "http://x/path", "http://*.example", "http://u:p@x", "https://", "http://x:1:2", "http://é"]
)
def test_an_origin_that_no_browser_sends_is_refused_with_its_value(
    origin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORS_ORIGINS", f"https://app.example, {origin}")

    with pytest.raises(
        SettingInvalid, match=f"CORS_ORIGINS: {re.escape(repr(origin))} is not an origin: write only scheme, host"
    ):
        read_settings()


@pytest.mark.parametrize("written", ['["http://a"', "[1]", "[[]]"])
def test_origins_that_cannot_be_read_are_refused_by_name(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORS_ORIGINS", written)

    with pytest.raises(SettingInvalid, match="CORS_ORIGINS"):
        read_settings()
