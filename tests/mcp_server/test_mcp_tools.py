"""The tools and resources of the MCP server: asking agents, and reading sessions and their history."""

from dataclasses import replace

import pytest

from fakes.api_stage import LOCAL, ApiStage, set_stage
from fakes.mcp_client import McpClient
from fakes.openai_stage import open_openai_stage
from fakes.scripted_model import Call
from fakes.scripted_turns import CAREFUL, DELETES
from fakes.stage import make_tool_box
from throughline.db.database import Database
from throughline.domain.run import RunError
from throughline.mcp_server.ask_agent import WAIT_SECONDS
from throughline.mcp_server.front_end import MCP

UNKNOWN = "00000000-0000-0000-0000-000000000007"


async def test_an_agent_answers_in_a_new_session_and_goes_on_in_it(client: McpClient) -> None:
    first = await client.call("ask_agent", message="hello")
    session_id = first["structuredContent"]["session_id"]
    second = await client.values("ask_agent", message="and now?", session_id=session_id)
    listed = await client.values("list_sessions")

    assert first["content"][0]["text"] == first["structuredContent"]["answer"] == "Hello back."
    assert session_id in first["content"][1]["text"]
    assert (second["session_id"], second["status"]) == (session_id, "succeeded")
    assert [(one["id"], one["title"], one["message_count"]) for one in listed["data"]] == [(session_id, "hello", 4)]


async def test_a_repeated_call_with_its_key_asks_nothing_twice(client: McpClient) -> None:
    first = await client.values("ask_agent", message="hello", idempotency_key="k", wait_seconds=20)
    again = await client.values("ask_agent", message="hello", idempotency_key="k")
    refused = await client.refusal("ask_agent", message="something else", idempotency_key="k")
    listed = await client.values("list_sessions")

    assert again == first
    assert "idempotency_key_reused" in refused
    assert len(listed["data"]) == 1


async def test_a_turn_that_takes_long_is_asked_for_again(stage: ApiStage, client: McpClient) -> None:
    stage.turns.may_end.clear()
    begun = await client.call("ask_agent", message="hello", wait_seconds=0)
    run_id = begun["structuredContent"]["run_id"]
    still = await client.values("get_run", run_id=run_id, wait_seconds=0)
    stage.turns.may_end.set()
    ended = await client.values("get_run", run_id=run_id)

    assert begun["structuredContent"]["answer"] is None
    assert "get_run" in begun["content"][0]["text"]
    assert still["status"] == "running"
    assert (ended["status"], ended["answer"]) == ("succeeded", "Hello back.")


async def test_a_failed_turn_is_an_error_with_its_reason(stage: ApiStage, client: McpClient) -> None:
    stage.turns.error = RunError("model_rejected", "The model refused the request.")

    result = await client.call("ask_agent", message="hello")

    assert result["isError"]
    assert result["content"][0]["text"] == "The model refused the request. (error: model_rejected)"
    assert result["structuredContent"]["error"]["type"] == "model_rejected"


async def test_without_a_worker_the_message_is_kept_and_said_to_be(database: Database) -> None:
    config = replace(LOCAL, no_worker_timeout_seconds=0.0, heartbeat_seconds=0.01)
    stage = set_stage(database).with_front_ends(config, MCP)
    stage.turns.has_worker = False
    async with stage.client() as http:
        result = await McpClient(http).call("ask_agent", message="hello")

    assert result["structuredContent"]["status"] == "queued"
    assert "worker" in result["content"][0]["text"]


async def test_a_cancelled_turn_is_told(stage: ApiStage, client: McpClient) -> None:
    stage.turns.may_end.clear()
    run_id = (await client.values("ask_agent", message="hello", wait_seconds=0))["run_id"]
    await client.http.post(f"/v1/runs/{run_id}/cancel")
    await stage.turns.is_cancelled.wait()
    stage.turns.may_end.set()

    assert "cancelled" in await client.refusal("get_run", run_id=run_id)


async def test_a_turn_that_waits_for_a_person_says_for_what(database: Database) -> None:
    def delete(file: str) -> str:
        """Delete a file.

        Args:
            file: its name
        """
        return f"deleted {file}"

    tools = make_tool_box(further=(delete,))
    async with open_openai_stage(database, agent=CAREFUL, tools=tools) as played:
        played.model.script(Call((DELETES,)))
        async with played.api.with_front_ends(LOCAL, MCP).client() as http:
            result = await McpClient(http).call("ask_agent", message="delete it", wait_seconds=WAIT_SECONDS)
            session_id = result["structuredContent"]["session_id"]
            refused = await McpClient(http).refusal("ask_agent", message="and?", session_id=session_id)

    assert result["structuredContent"]["status"] == "waiting"
    assert [call["kind"] for call in result["structuredContent"]["waiting_for"]["calls"]] == ["approval"]
    assert "delete (approval)" in result["content"][0]["text"]
    assert "session_" in refused


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "message: This field is required."),
        ({"message": ""}, "message:"),
        ({"message": " \n"}, "message:"),
        ({"message": 7}, "message: Must be text."),
        ({"message": "hi", "loud": True}, "loud: This field does not exist."),
        ({"message": "hi", "wait_seconds": 9_999}, "wait_seconds: Must be 300 or less."),
        ({"message": "hi", "agent": "nobody"}, "nobody"),
        ({"message": "hi", "agent": "assistant", "session_id": UNKNOWN}, "agent:"),
        ({"message": "hi", "session_id": UNKNOWN}, "There is no session"),
        ({"message": "hi", "session_id": "no id"}, "There is no session"),
        ({"message": "hi", "idempotency_key": "ä"}, "idempotency_key:"),
    ],
)
async def test_wrong_arguments_are_errors_that_a_model_can_read(
    client: McpClient, arguments: dict[str, object], told: str
) -> None:
    assert told in await client.refusal("ask_agent", **arguments)


@pytest.mark.parametrize("params", [{}, {"name": 7}, {"name": "nothing"}, {"name": "ask_agent", "arguments": []}])
async def test_a_call_of_no_tool_is_an_error_of_the_protocol(client: McpClient, params: dict[str, object]) -> None:
    old = replace(client, revision="2025-11-25")

    assert (await old.error("tools/call", **params))["code"] == -32602


async def test_the_history_is_searched_and_read_around_a_hit(client: McpClient) -> None:
    session_id = (await client.values("ask_agent", message="the gateway port is 8443"))["session_id"]
    await client.values("ask_agent", message="and the gateway host?")

    everywhere = await client.values("search_history", q="gateway")
    there = await client.values("search_history", q="gateway", session_id=session_id)
    hit = there["messages"][0]
    read = await client.call("read_messages", session_id=session_id, from_position=hit["position"], limit=1)

    assert {one["session_title"] for one in everywhere["messages"]} == {
        "the gateway port is 8443",
        "and the gateway host?",
    }
    assert (hit["text"], hit["session_title"]) == ("the gateway port is 8443",) * 2
    assert read["structuredContent"]["messages"][0]["text"] == "the gateway port is 8443"
    assert read["structuredContent"]["next_position"] == 2
    assert read["content"][0]["text"].startswith("#1 user local, ")
    assert (await client.call("search_history", q="zebra"))["content"][0]["text"] == "No message matches."


async def test_a_query_that_cannot_be_understood_is_explained(client: McpClient) -> None:
    assert (await client.refusal("search_history", q="before:never")).startswith("q: `before:never` names no day")


async def test_the_newest_messages_are_read_and_long_ones_are_cut(client: McpClient) -> None:
    session_id = (await client.values("ask_agent", message="first"))["session_id"]
    await client.values("ask_agent", message="x" * 500, session_id=session_id)

    read = await client.values("read_messages", session_id=session_id, limit=2, max_characters=100)

    assert [one["position"] for one in read["messages"]] == [3, 4]
    assert (len(read["messages"][0]["text"]), read["messages"][0]["is_cut"]) == (100, True)
    assert read["next_position"] is None


async def test_the_context_is_reported_as_over_rest(client: McpClient) -> None:
    session_id = (await client.values("ask_agent", message="hello"))["session_id"]

    reported = await client.values("get_context", session_id=session_id)

    assert reported == (await client.http.get(f"/v1/sessions/{session_id}/context")).json()


async def test_sessions_are_listed_page_by_page(client: McpClient) -> None:
    for name in ("one", "two", "three"):
        await client.values("ask_agent", message=name)

    first = await client.values("list_sessions", limit=2)
    second = await client.values("list_sessions", limit=2, cursor=first["next_cursor"])
    found = await client.values("list_sessions", q="two", agent="assistant")

    assert [one["title"] for one in first["data"] + second["data"]] == ["three", "two", "one"]
    assert second["next_cursor"] is None
    assert [one["title"] for one in found["data"]] == ["two"]
    assert "cursor" in await client.refusal("list_sessions", cursor="nonsense")


async def test_sessions_are_resources(client: McpClient) -> None:
    session_id = (await client.values("ask_agent", message="hello"))["session_id"]
    uri = f"throughline://sessions/{session_id}"

    listed = await client.result("resources/list")
    templates = await client.result("resources/templates/list")
    read = await client.result("resources/read", uri=uri)

    assert [(one["uri"], one["title"]) for one in listed["resources"]] == [(uri, "hello")]
    assert "nextCursor" not in listed
    assert templates["resourceTemplates"][0]["uriTemplate"] == "throughline://sessions/{session_id}"
    assert read["contents"][0]["uri"] == uri
    assert "#1 user local" in read["contents"][0]["text"]
    assert "Hello back." in read["contents"][0]["text"]


@pytest.mark.parametrize(
    "uri", [f"throughline://sessions/{UNKNOWN}", "throughline://sessions/x", "file:///etc/passwd", ""]
)
async def test_an_unknown_resource_is_an_error_with_the_code_of_its_revision(client: McpClient, uri: str) -> None:
    error = await client.error("resources/read", uri=uri)
    old = await replace(client, revision="2025-06-18").error("resources/read", uri=uri)

    assert (error["code"], error["data"]["uri"]) == (-32602, uri)
    assert old["code"] == -32002


async def test_a_wrong_cursor_of_resources_is_an_error_of_the_protocol(client: McpClient) -> None:
    assert (await client.error("resources/list", cursor="nonsense"))["code"] == -32602
    assert (await client.error("resources/list", cursor=7))["code"] == -32602
