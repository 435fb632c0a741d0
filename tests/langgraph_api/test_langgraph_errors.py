"""Errors of LangGraph's interface: clear words, nothing stored, and nothing of other users."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from fakes.api_stage import ApiStage
from fakes.front_end_stages import keyed
from fakes.langgraph_stage import AGENT_NAME, LangGraphStage, said
from throughline.http.app import FrontEnd
from throughline.langgraph_api.absent_routes import ABSENT
from throughline.langgraph_api.front_end import LANGGRAPH_API

__all__ = ["keyed"]

RUN = {"assistant_id": AGENT_NAME, "input": said("hello")}
THREAD = "/threads/0198c1f0-0000-4000-8000-000000000001"
INVALID, NOT_SERVED = httpx.codes.UNPROCESSABLE_ENTITY, httpx.codes.NOT_IMPLEMENTED


@pytest.fixture
def front_ends() -> Sequence[FrontEnd]:
    return (LANGGRAPH_API,)


def message(**fields: object) -> dict[str, object]:
    return {"input": {"messages": [fields]}}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"assistant_id": "nobody"}, httpx.codes.NOT_FOUND, "Known agents"),
        ({"assistant_id": None}, INVALID, "assistant_id"),
        ({"input": None}, INVALID, "`messages`"),
        ({"input": {"messages": []}}, INVALID, "input.messages"),
        ({"input": {"messages": 7}}, INVALID, "input.messages.0"),
        ({"input": [7]}, INVALID, "input.messages.0"),
        (message(role="robot", content="x"), INVALID, "input.messages.0.type"),
        (message(content="x"), INVALID, "input.messages.0.type"),
        (message(type="remove", id="m"), INVALID, "never removed"),
        (message(role="user", content=5), INVALID, "input.messages.0.content"),
        (message(role="user", content=" "), INVALID, "input.messages"),
        (message(role="user", content="x", id=7), INVALID, "id of a message"),
        (message(role="user", content=[{"type": "file"}]), INVALID, "input.messages.0.content.0"),
        (message(role="user", content=[{"type": "image", "url": "ftp://a"}]), INVALID, "content.0"),
        (message(role="assistant", content=[{"type": ["text"]}]), INVALID, "content.0"),
        (message(role="tool", content="x"), INVALID, "input.messages.0.tool_call_id"),
        (message(role="assistant", content="x"), INVALID, "input.messages"),
        ({"stream_mode": ["values", "debug"]}, INVALID, "stream_mode.1"),
        ({"stream_mode": "events"}, INVALID, "stream_mode.0"),
        ({"multitask_strategy": "rollback"}, INVALID, "multitask_strategy"),
        ({"metadata": {"a": "x" * 20_000}}, INVALID, "metadata"),
        ({"unknown": 1}, INVALID, "unknown"),
        ({"command": {"goto": "llm_node"}}, INVALID, "command.goto"),
        ({"command": {"update": {"messages": []}}}, INVALID, "command.update"),
        ({"webhook": "https://a.example"}, INVALID, "webhook"),
        ({"after_seconds": 5}, INVALID, "after_seconds"),
        ({"interrupt_before": ["llm_node"]}, INVALID, "interrupt_before"),
        ({"interrupt_after": "*"}, INVALID, "interrupt_after"),
        ({"checkpoint_id": "c"}, INVALID, "checkpoint"),
        ({"config": {"configurable": {"checkpoint_id": "c"}}}, INVALID, "checkpoint"),
    ],
)
async def test_a_wrong_run_is_explained_and_stores_nothing(
    stage: LangGraphStage, change: dict[str, object], status: int, words: str
) -> None:
    body = {**RUN, "if_not_exists": "create", **change}
    answers = [await stage.post(path, body) for path in ("/runs/wait", f"{THREAD}/runs/stream", f"{THREAD}/runs")]

    for answer in answers:
        assert answer.status_code == status, answer.text
        assert words in answer.text
    assert await stage.client.threads.search() == []


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/threads", {"ttl": {"ttl": 5}}, INVALID, "ttl"),
        ("/threads", {"supersteps": [{"updates": []}]}, INVALID, "supersteps"),
        ("/threads", {"metadata": {"graph_id": "nobody"}}, httpx.codes.NOT_FOUND, "Known agents"),
        ("/threads", {"if_exists": "replace"}, INVALID, "if_exists"),
        ("/threads/search", {"limit": 0}, INVALID, "limit"),
        ("/threads/search", {"sort_by": "status"}, INVALID, "sort_by"),
        ("/threads/search", {"values": {"a": 1}}, INVALID, "values"),
        ("/threads/count", {"status": "asleep"}, INVALID, "status"),
        ("/assistants/search", {"limit": -1}, INVALID, "limit"),
        ("/runs/batch", [], INVALID, "list of 1 to 20"),
        ("/runs/batch", [RUN, {"input": "hello"}], INVALID, "assistant_id"),
        (f"{THREAD}/runs/wait", RUN, httpx.codes.NOT_FOUND, "no thread"),
        (f"{THREAD}/copy", {}, httpx.codes.NOT_FOUND, "no thread"),
        ("/threads/nonsense/runs/wait", {**RUN, "if_not_exists": "create"}, httpx.codes.NOT_FOUND, "nonsense"),
    ],
)
async def test_a_wrong_request_is_explained(
    stage: LangGraphStage, path: str, body: object, status: int, words: str
) -> None:
    answer = await stage.post(path, body)

    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert await stage.client.threads.search() == []


@pytest.mark.parametrize(
    ("method", "path"),
    [tuple(route.split(" ")) for routes in ABSENT for route in routes],
)
async def test_absent_routes_say_what_to_use(stage: LangGraphStage, method: str, path: str) -> None:
    path = path.replace("{id}", "a").replace("{run_id}", "b").replace("{rest:path}", "c/d")
    for one in ("GET", "POST") if method == "*" else (method,):
        answer = await stage.http.request(one, f"/langgraph{path}", json={} if one == "POST" else None)

        assert (answer.status_code, answer.json()["type"]) == (NOT_SERVED, "/problems/not_served")
        assert path in answer.json()["detail"]


async def test_unknown_routes_are_problems(stage: LangGraphStage) -> None:
    unknown = await stage.http.get("/langgraph/nothing/here")
    wrong_method = await stage.http.put("/langgraph/threads/search", json={})

    assert unknown.json()["type"] == "/problems/route_not_found"
    assert wrong_method.json()["type"] == "/problems/method_not_allowed"


async def test_the_service_says_that_it_is_there(stage: LangGraphStage) -> None:
    ok, info = [await stage.http.get(f"/langgraph/{name}") for name in ("ok", "info")]
    described = (await stage.http.get("/openapi-langgraph.json")).json()

    assert ok.json() == {"ok": True}
    assert info.json()["flags"]["crons"] is False
    waiting = described["paths"]["/langgraph/threads/{thread_id}/runs/wait"]["post"]
    assert "`invalid_input`" in waiting["responses"]["422"]["description"]
    assert described["components"]["schemas"]["CreateRun"]["required"] == ["assistant_id"]


async def test_nobody_reaches_threads_of_others(keyed: ApiStage) -> None:
    anna, bert = await keyed.key("anna"), await keyed.key("bert")
    async with keyed.client(key=anna) as hers, keyed.client(key=bert) as his:
        chosen = "0198c1f0-0000-4000-8000-000000000001"
        thread = (await hers.post("/langgraph/threads", json={"thread_id": chosen})).json()["thread_id"]
        run = (await hers.post(f"/langgraph/threads/{thread}/runs", json=RUN)).json()["run_id"]
        await hers.get(f"/langgraph/threads/{thread}/runs/{run}/join")
        own = (await his.post("/langgraph/threads", json={})).json()["thread_id"]
        at = f"/langgraph/threads/{thread}"
        refused: list[Any] = [
            await his.get(at),
            await his.get(f"{at}/state"),
            await his.get(f"{at}/history"),
            await his.get(f"{at}/runs"),
            await his.get(f"{at}/runs/{run}"),
            await his.get(f"{at}/runs/{run}/stream"),
            await his.get(f"/langgraph/threads/{own}/runs/{run}"),
            await his.post(f"/langgraph/threads/{own}/runs/{run}/cancel"),
            await his.post(f"{at}/copy"),
            await his.post(f"{at}/runs/wait", json=RUN),
            await his.patch(at, json={"metadata": {"a": 1}}),
            await his.delete(at),
        ]
        found = (await his.post("/langgraph/threads/search", json={"ids": [thread]})).json()
        same_id = await his.post("/langgraph/threads", json={"thread_id": chosen})
        without_key = await hers.get(at, headers={"Authorization": ""})

    assert {answer.status_code for answer in refused} == {httpx.codes.NOT_FOUND}
    assert found == []
    assert same_id.status_code == httpx.codes.OK
    assert without_key.status_code == httpx.codes.UNAUTHORIZED
