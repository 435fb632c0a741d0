"""Who may do what over MCP: the same as over REST."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
import pytest

from api.test_isolation import CHANNEL, linked
from fakes.api_stage import KEYED, ApiStage, set_stage
from fakes.mcp_client import WITH_TASKS, McpClient
from fakes.slack_delivery import take
from throughline.db.database import Database
from throughline.domain.keys import Scope
from throughline.mcp_server.front_end import MCP


@dataclass
class Owned:
    """What anna has: a key, a session and its run."""

    key: str
    session_id: str
    run_id: str


@asynccontextmanager
async def acting(stage: ApiStage, key: str, user: str = "") -> AsyncIterator[McpClient]:
    async with stage.client(key=key, user=user) as http:
        yield McpClient(http, capabilities=WITH_TASKS)


@pytest.fixture
async def anna(keyed: ApiStage) -> Owned:
    key = await keyed.key("anna")
    async with acting(keyed, key) as client:
        asked = await client.values("ask_agent", message="my secret")
    return Owned(key, asked["session_id"], asked["run_id"])


async def test_without_a_key_nothing_is_served(keyed: ApiStage) -> None:
    async with keyed.client() as http:
        response = await McpClient(http).send("tools/list")

    assert response.status_code == httpx.codes.UNAUTHORIZED
    assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("ask_agent", {"message": "hi"}),
        ("search_history", {"q": "secret"}),
        ("read_messages", {}),
        ("get_context", {}),
    ],
)
async def test_the_session_of_another_user_is_not_there(
    keyed: ApiStage, anna: Owned, tool: str, more: Mapping[str, object]
) -> None:
    async with acting(keyed, await keyed.key("bob")) as bob:
        told = await bob.refusal(tool, session_id=anna.session_id, **more)

    assert told == f"There is no session {anna.session_id}. (error: not_found)"


async def test_nothing_else_of_another_user_is_reached(keyed: ApiStage, anna: Owned) -> None:
    async with acting(keyed, await keyed.key("bob")) as bob:
        run = await bob.refusal("get_run", run_id=anna.run_id)
        task = await bob.error("tasks/get", taskId=anna.run_id)
        cancelled = await bob.error("tasks/cancel", taskId=anna.run_id)
        read = await bob.error("resources/read", uri=f"throughline://sessions/{anna.session_id}")
        listed = await bob.result("resources/list")
        found = await bob.values("search_history", q="secret")
        sessions = await bob.values("list_sessions")

    assert "There is no run" in run
    assert (task["code"], cancelled["code"], read["code"]) == (-32602, -32602, -32602)
    assert (listed["resources"], found["messages"], sessions["data"]) == ([], [], [])


async def test_a_key_that_only_reads_cannot_ask_or_cancel(keyed: ApiStage, anna: Owned) -> None:
    async with acting(keyed, await keyed.key("anna", Scope.READ)) as reader:
        told = await reader.refusal("ask_agent", message="hi", session_id=anna.session_id)
        new = await reader.refusal("ask_agent", message="hi")
        cancelled = await reader.error("tasks/cancel", taskId=anna.run_id)
        read = await reader.values("read_messages", session_id=anna.session_id)

    assert told == new == "This request needs a key with the scope `write`. (error: not_allowed)"
    assert (cancelled["code"], cancelled["data"]["status"]) == (-32000, httpx.codes.FORBIDDEN)
    assert len(read["messages"]) == 2


async def test_a_key_that_only_writes_cannot_read(keyed: ApiStage, anna: Owned) -> None:
    async with acting(keyed, await keyed.key("anna", Scope.WRITE)) as writer:
        told = await writer.refusal("read_messages", session_id=anna.session_id)
        asked = await writer.values("ask_agent", message="hi", session_id=anna.session_id)

    assert "`read`" in told
    assert asked["status"] == "succeeded"


async def test_an_access_token_stays_with_its_sessions(keyed: ApiStage, anna: Owned) -> None:
    async with acting(keyed, anna.key) as owner:
        other = await owner.values("ask_agent", message="another secret")
        made = await owner.http.post("/v1/tokens", json={"session_ids": [anna.session_id]})
    async with acting(keyed, made.json()["token"]) as page:
        asked = await page.values("ask_agent", message="hi", session_id=anna.session_id)
        read = await page.values("read_messages", session_id=anna.session_id)
        run = await page.values("get_run", run_id=anna.run_id)
        refused = [
            await page.refusal("ask_agent", message="hi", session_id=other["session_id"]),
            await page.refusal("read_messages", session_id=other["session_id"]),
            await page.refusal("search_history", q="secret", session_id=other["session_id"]),
            await page.refusal("get_context", session_id=other["session_id"]),
            await page.refusal("get_run", run_id=other["run_id"]),
        ]
        limited = [
            await page.refusal("ask_agent", message="hi"),
            await page.refusal("search_history", q="secret"),
            await page.refusal("list_sessions"),
        ]
        listed = await page.result("tools/list")
        resources = await page.error("resources/list")
        resource = await page.error("resources/read", uri=f"throughline://sessions/{other['session_id']}")

    assert asked["status"] == run["status"] == "succeeded"
    assert len(read["messages"]) == 4
    assert "Agents: " not in str(listed)
    assert all("There is no" in told for told in refused)
    assert all("not_allowed" in told for told in limited)
    assert (resources["code"], resource["code"]) == (-32000, -32602)


async def test_a_back_end_acts_for_the_user_it_names(keyed: ApiStage) -> None:
    key = await keyed.key("shop", Scope.READ, Scope.WRITE, Scope.ACT_AS)
    async with acting(keyed, key, "carla") as carla:
        asked = await carla.values("ask_agent", message="hi")
        read = await carla.values("read_messages", session_id=asked["session_id"])
    async with acting(keyed, key) as shop:
        own = await shop.values("list_sessions")

    assert read["messages"][0]["author"] == "carla"
    assert own["data"] == []


async def test_a_participant_of_a_shared_session_reads_and_asks_in_it(keyed: ApiStage) -> None:
    await linked(keyed, "U0ANNA001", "anna")
    await linked(keyed, "U0BERT001", "bert")
    session = str(await take(keyed.database, "hello", channel=CHANNEL, user="U0ANNA001"))
    await take(keyed.database, "me too", channel=CHANNEL, user="U0BERT001", thread=True)
    async with acting(keyed, await keyed.key("bert")) as bert:
        asked = await bert.result(
            "tools/call", name="ask_agent", arguments={"message": "hi", "session_id": session, "wait_seconds": 0}
        )
        task = await bert.result("tasks/get", taskId=asked["taskId"])
        context = await bert.call("get_context", session_id=session)
        listed = await bert.values("list_sessions")

    assert (asked["resultType"], task["status"]) == ("task", "working")
    assert not context["isError"]
    assert listed["data"] == []


async def test_a_revoked_key_ends_the_wait(database: Database) -> None:
    config = replace(KEYED, heartbeat_seconds=0.01)
    stage = set_stage(database, config).with_front_ends(config, MCP)
    stage.turns.may_end.clear()
    async with acting(stage, await stage.key("dora")) as dora:
        waiting = asyncio.create_task(dora.send("tools/call", name="ask_agent", arguments={"message": "hello"}))
        await stage.turns.has_begun.wait()
        for listed in await database.keys.list():
            await database.keys.revoke(str(listed.id))
        refused = await waiting
    await stage.turns.settle()

    assert refused.status_code == httpx.codes.UNAUTHORIZED
