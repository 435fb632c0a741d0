import pytest

from fakes.api_stage import set_stage
from throughline.db.database import Database

CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"q": 1}'}}
CONVERSATION: list[dict[str, object]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Where is the anchor?", "name": "anna"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "in the shed", "tool_call_id": "c1", "name": "grep"},
    {"role": "assistant", "content": "In the shed."},
]


async def test_a_conversation_becomes_a_session_that_can_be_read_searched_and_gone_on_with(database: Database) -> None:
    async with set_stage(database).client() as client:
        body = {"agent": "assistant", "title": "Anchor", "messages": CONVERSATION}
        made = await client.post("/v1/sessions/import", json=body)
        path = made.headers["Location"]
        messages = (await client.get(f"{path}/messages")).json()["data"]
        found = (await client.get(f"{path}/search?q=anchor")).json()["data"]
        answer = await client.post(f"{path}/messages", json={"content": "Thanks"})

    assert (made.status_code, made.json()["message_count"], made.json()["title"]) == (201, 4, "Anchor")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"] == [{"id": "c1", "name": "grep", "arguments": '{"q": 1}'}]
    assert (messages[0]["author"], messages[2]["name"], messages[3]["token_count"]) == ("anna", "grep", 7)
    assert found[0]["message"]["position"] == 1
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "messages", [[{"role": "king", "content": "x"}], [{"role": "tool", "content": "x"}], [{"content": "x"}]]
)
async def test_what_is_no_conversation_is_refused_and_leaves_nothing(
    database: Database, messages: list[dict[str, object]]
) -> None:
    async with set_stage(database).client() as client:
        refused = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": messages})
        sessions = (await client.get("/v1/sessions")).json()["data"]

    assert (refused.status_code, sessions) == (422, [])


@pytest.mark.parametrize("messages", [[], CONVERSATION[:1], [{"role": "developer", "content": "Be kind."}]])
async def test_a_conversation_without_anything_to_go_on_with_is_refused_in_words(
    database: Database, messages: list[dict[str, object]]
) -> None:
    async with set_stage(database).client() as client:
        refused = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": messages})
        sessions = (await client.get("/v1/sessions")).json()["data"]

    assert (refused.status_code, sessions) == (422, [])
    assert "There is nothing to import: a session needs at least one message of a user" in refused.json()["detail"]


async def test_agent_and_title_in_the_address_stand_before_those_in_the_body(database: Database) -> None:
    body = {"agent": "of-elsewhere", "title": "Old", "messages": CONVERSATION}
    async with set_stage(database).client() as client:
        made = await client.post("/v1/sessions/import?agent=researcher&title=New", json=body)

    assert (made.json()["agent"], made.json()["title"]) == ("researcher", "New")
