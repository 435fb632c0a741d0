"""Runs that wait for approvals and client tools, through the real service, over REST, and across a kill."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from fakes.model_servers import OLLAMA, VLLM, RouteAnswer, serve_model_server
from fakes.pooler import environment_of
from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.raw_sql import run_sql
from fakes.service_process import ServiceProcess, free_port, run_service

pytestmark = pytest.mark.slow

TOOL = '''
from pathlib import Path

from throughline.tools import not_repeatable


@not_repeatable
def delete(file: str) -> str:
    """Delete a file.

    Args:
        file: its name
    """
    with Path("deleted.txt").open("a") as list_of_deleted:
        list_of_deleted.write(file + "\\n")
    return f"{file} is deleted"
'''
WEATHER = {"name": "weather", "description": "Tell the weather.", "parameters": {"type": "object", "properties": {}}}
ASKED = ScriptStep(calls=(ScriptedCall("call_1", "weather"),))


def environment(folder: Path, on_double: Mapping[str, str]) -> Mapping[str, str]:
    agents = folder / "agents"
    agents.mkdir()
    (agents / "files.py").write_text(TOOL)
    (agents / "careful.yaml").write_text(
        "name: careful\ntools: ['files:delete', ask_user]\nneeds_approval: [delete]\nclient_tools: false\n"
    )
    return {**on_double, "AGENTS_DIR": str(agents)}


async def send(service: ServiceProcess, session: str, **more: object) -> dict[str, Any]:
    response = await service.client.post(f"/v1/sessions/{session}/messages", json={"content": "hi", **more})
    assert response.status_code == httpx.codes.OK, response.text
    return dict(response.json())


async def resume(service: ServiceProcess, run_id: str, *calls: dict[str, object], **headers: str) -> httpx.Response:
    return await service.client.post(f"/v1/runs/{run_id}/resume", json={"calls": calls}, headers=headers)


def deleted(folder: Path) -> list[str]:
    return [name for written in folder.rglob("deleted.txt") for name in written.read_text().split()]


def deletion(number: int) -> ScriptStep:
    return ScriptStep(calls=(ScriptedCall(f"call_{number}", "delete", json.dumps({"file": f"{number}.txt"})),))


async def test_runs_that_wait_for_approval_survive_a_kill_and_run_their_tool_once(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    settings, port, many = environment(folder, on_double), free_port(), 20
    provider_double.script(*[deletion(number) for number in range(many)])
    async with run_service(folder, settings, port=port) as service:
        sessions = [await service.new_session("careful") for _ in range(many)]
        waiting = [(await send(service, session))["run"] for session in sessions]
        assert {run["status"] for run in waiting} == {"waiting"}
        await service.kill()
    assert deleted(folder) == []

    provider_double.script(*[ScriptStep(f"done {number}") for number in range(many)])
    async with run_service(folder, settings, port=port) as service:
        given = [{"call_id": run["waiting_for"]["calls"][0]["id"], "decision": "approve"} for run in waiting]
        answers = await asyncio.gather(*[
            resume(service, run["id"], one) for run, one in zip(waiting, given, strict=True) for _ in range(2)
        ])
        histories = [await service.history(session) for session in sessions]

    assert {answer.status_code for answer in answers} <= {httpx.codes.OK, httpx.codes.CONFLICT}
    assert all([message["role"] for message in one] == ["user", "assistant", "tool", "assistant"] for one in histories)
    assert sorted(deleted(folder)) == sorted(f"{number}.txt" for number in range(many))


async def test_a_client_brings_a_tool_and_its_result(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(ASKED, ScriptStep("It rains."))
    async with run_service(folder, on_double) as service:
        session = await service.new_session()
        first = await send(service, session, tools=[WEATHER])
        refused = await resume(service, first["run"]["id"], {"call_id": "call_1", "decision": "approve"})
        answer = await resume(
            service, first["run"]["id"], {"call_id": "call_1", "output": "rain"}, Accept="text/event-stream"
        )
        late = await resume(service, first["run"]["id"], {"call_id": "call_1", "output": "sun"})
        run = (await service.client.get(f"/v1/runs/{first['run']['id']}")).json()

    assert (first["message"], first["run"]["status"]) == (None, "waiting")
    (call,) = first["run"]["waiting_for"]["calls"]
    assert call == {"id": "call_1", "name": "weather", "arguments": "{}", "kind": "tool_result", "server": None}
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/invalid_input")
    names = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert (names[0], names[-1]) == ("run.started", "run.completed")
    assert "tool.result" in names
    assert (late.status_code, late.json()["type"]) == (409, "/problems/run_not_waiting")
    assert (run["status"], run["waiting_for"]) == ("succeeded", None)
    assert "weather" in [tool["function"]["name"] for tool in provider_double.requests[0].tools]


async def test_tools_that_an_agent_does_not_take_are_refused_before_anything_is_stored(
    folder: Path, on_double: Mapping[str, str], database_url: str
) -> None:
    async with run_service(folder, environment(folder, on_double)) as service:
        careful, assistant = await service.new_session("careful"), await service.new_session()
        path = "/v1/sessions/{}/messages"
        tools = [{"name": "calculator"}]
        not_allowed = await service.client.post(path.format(careful), json={"content": "hi", "tools": tools})
        taken = await service.client.post(path.format(assistant), json={"content": "hi", "tools": tools})
        twice = await service.client.post(path.format(assistant), json={"content": "hi", "tools": [WEATHER, WEATHER]})

    assert [response.status_code for response in (not_allowed, taken, twice)] == [422] * 3
    assert "takes no tools from requests" in not_allowed.json()["detail"]
    assert taken.json()["errors"][0]["field"] == "tools.0.name"
    assert await run_sql(database_url, "select count(*) from runs") == [(0,)]


def settings(database_url: str, address: str, model: str) -> Mapping[str, str]:
    return {
        **environment_of(database_url),
        "DEFAULT_LLM": f"openai:{model}",
        "DEFAULT_LLM_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "of-another-server",
    }


async def windows(service: ServiceProcess) -> set[tuple[int, str]]:
    agents = (await service.client.get("/v1/agents")).raise_for_status().json()["data"]
    return {(agent["window"], agent["window_from"]) for agent in agents}


async def test_the_window_of_the_models_server_is_used_and_told(folder: Path, database_url: str) -> None:
    async with serve_model_server(VLLM) as server:
        async with run_service(folder, settings(database_url, server.url, "Qwen/Qwen3-32B")) as service:
            told = await windows(service)
        log = service.log.read_text()

    assert told == {(40_960, "server")}
    assert server.asked == ["/v1/models"]
    assert log.count("context window found") == 1
    assert "context window unknown" not in log
    assert "of-another-server" not in "".join(server.heads)


@pytest.mark.parametrize("answer", [RouteAnswer(hangs=True), RouteAnswer(status=500)], ids=["hangs", "fails"])
async def test_a_server_without_an_answer_stops_no_start_and_is_warned_of(
    answer: RouteAnswer, folder: Path, database_url: str
) -> None:
    async with (
        serve_model_server({"/v1/models": answer}) as server,
        run_service(folder, settings(database_url, server.url, "house-model")) as service,
    ):
        told = await windows(service)

    log = service.log.read_text()
    assert told == {(8192, "unknown")}
    assert log.count("context window unknown") == 1
    assert "set context.window in the agent file" in log


async def test_every_shipped_agent_fits_the_lowest_window_of_ollama(folder: Path, database_url: str) -> None:
    async with (
        serve_model_server(OLLAMA) as server,
        run_service(folder, settings(database_url, server.url, "qwen2.5:7b")) as service,
    ):
        told = await windows(service)

    assert told == {(4096, "unknown")}
    assert "Ollama has not loaded the model" in service.log.read_text()
