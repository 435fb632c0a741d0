"""Tools of MCP servers in the real service: called in turns, not called twice after a kill, ended with the service."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.service_process import ServiceProcess, run_service
from fakes.waiting import HANG_SECONDS, until

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
pytestmark = pytest.mark.slow

SERVER = Path(__file__).parents[1] / "fakes" / "mcp_server.py"
UNKNOWN = "Whether it took effect is unknown."
AGENT = """
name: served
mcp_servers:
  fake: {{command: {command}, env: {{SECRET: FAKE_SECRET}}, needs_approval: [fail]}}
  away: {{command: [no-such-program]}}
"""


def environment(folder: Path, on_double: Mapping[str, str]) -> Mapping[str, str]:
    agents = folder / "agents"
    agents.mkdir()
    command = json.dumps([sys.executable, str(SERVER)])
    (agents / "served.yaml").write_text(AGENT.format(command=command))
    return {**on_double, "AGENTS_DIR": str(agents), "FAKE_SECRET": "given", "OTHER_SECRET": "kept"}


def calling(tool: str, **arguments: object) -> ScriptStep:
    return ScriptStep(calls=(ScriptedCall("call_1", f"fake__{tool}", json.dumps(arguments)),))


def programs_of(service: ServiceProcess) -> list[psutil.Process]:
    """Return the servers that the service has started."""
    children = psutil.Process(service.process.pid).children(recursive=True)
    return [child for child in children if SERVER.name in " ".join(child.cmdline())]


async def result_of(service: ServiceProcess, session: str) -> str:
    return next(str(message["content"]) for message in await service.history(session) if message["role"] == "tool")


async def test_a_turn_calls_a_tool_of_a_server_which_gets_no_other_variables(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(calling("variable", wanted="SECRET"), ScriptStep("Done."))
    async with run_service(folder, environment(folder, on_double)) as service:
        session = await service.new_session("served")
        answer = await service.send(session, "go")
        names, value = json.loads(await result_of(service, session))
        (program,) = programs_of(service)

        assert answer.json()["run"]["status"] == "succeeded"
        assert value == "given"
        assert "OTHER_SECRET" not in names
        assert "DATABASE_URL" not in names

    await ended(program)


async def ended(program: psutil.Process) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while program.is_running() and program.status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.05)


async def send_and_wait_for_the_call(service: ServiceProcess, session: str, log: Path) -> str:
    """Send a message; return its run when the server has been called."""
    sent = await service.client.post(
        f"/v1/sessions/{session}/messages", json={"content": "go"}, headers={"Prefer": "respond-async"}
    )
    await until(lambda: log.exists() and bool(log.read_text()))
    return str(sent.json()["run"]["id"])


async def until_succeeded(service: ServiceProcess, run: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while (await service.client.get(f"/v1/runs/{run}")).json()["status"] != "succeeded":
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("tool", "calls", "told"),
    [
        ("read_slowly", 2, "done"),
        ("write_slowly", 1, "This call was interrupted and whether it took effect is unknown. It was not repeated."),
    ],
)
async def test_a_kill_of_the_service_repeats_only_calls_that_may_be_repeated(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble, tool: str, calls: int, told: str
) -> None:
    log = folder / "calls"
    provider_double.script(calling(tool, log=str(log)), ScriptStep("Done."))
    settings = environment(folder, on_double)
    async with run_service(folder, settings) as service:
        session = await service.new_session("served")
        run = await send_and_wait_for_the_call(service, session, log)
        (program,) = programs_of(service)
        await service.kill()
    await ended(program)

    async with run_service(folder, settings) as service:
        await until_succeeded(service, run)
        assert await result_of(service, session) == told

    assert len(log.read_text().splitlines()) == calls


async def test_a_kill_of_a_server_in_a_call_is_told_and_the_next_call_starts_it_again(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    log = folder / "calls"
    add = ScriptStep(calls=(ScriptedCall("call_2", "fake__add", '{"a": 1, "b": 2}'),))
    provider_double.script(calling("read_slowly", log=str(log)), add, ScriptStep("Done."))
    async with run_service(folder, environment(folder, on_double)) as service:
        session = await service.new_session("served")
        run = await send_and_wait_for_the_call(service, session, log)
        (killed,) = programs_of(service)
        killed.kill()
        await until_succeeded(service, run)
        (program,) = programs_of(service)
        results = [message["content"] for message in await service.history(session) if message["role"] == "tool"]

    assert len(log.read_text().splitlines()) == 1
    assert program.pid != killed.pid
    assert results == [
        "fake__read_slowly: the connection to its server ended before the result (Connection closed). " + UNKNOWN,
        "3",
    ]


async def test_a_question_of_a_server_survives_a_kill(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.script(calling("book"), ScriptStep("It is booked."))
    settings = environment(folder, on_double)
    async with run_service(folder, settings) as service:
        session = await service.new_session("served")
        run = (await service.send(session, "go")).json()["run"]
        await service.kill()
    async with run_service(folder, settings) as service:
        refused = await answer(service, run, '{"city": "Husum"}')
        second = await answer(service, run, '{"city": "Husum", "seats": 2}')
        await service.kill()
    async with run_service(folder, settings) as service:
        third = await answer(service, second.json()["run"], "yes")
        told = await result_of(service, session)

    (asked,) = run["waiting_for"]["calls"]
    kept = [asked[key] for key in ("id", "name", "kind", "server")]
    assert kept == ["call_1:1", "ask_user", "answer", "fake"]
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "calls.0.output")
    assert third.json()["message"]["content"] == "It is booked."
    assert told == "2 in Husum, sure: True, call 1"


async def answer(service: ServiceProcess, run: Mapping[str, Any], text: str) -> httpx.Response:
    """Answer the open question of the waiting run."""
    (asked,) = run["waiting_for"]["calls"]
    body = {"calls": [{"call_id": asked["id"], "output": text}]}
    return await service.client.post(f"/v1/runs/{run['id']}/resume", json=body)
