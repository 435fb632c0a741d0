"""The running service follows its agent files: a changed one answers, an invalid one changes nothing."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.provider_double import ProviderDouble
from fakes.service_process import ServiceProcess, is_ready, run_service, run_worker
from fakes.waiting import until

pytestmark = pytest.mark.slow
TOOL = "def number() -> int:\n    '''Return a number.'''\n    return 1\n"


def write(folder: Path, prompt: str, further: str = "") -> None:
    (folder / "own.yaml").write_text(
        f"name: own\nsystem_prompt: {prompt}\ndescription: {prompt}\ntools: ['reread_tools:number']\n{further}"
    )


def prepared(folder: Path) -> Path:
    agents = folder / "agents"
    agents.mkdir()
    write(agents, "first")
    (agents / "reread_tools.py").write_text(TOOL)
    return agents


async def told(log: Path, event: str, times: int = 1) -> list[dict[str, object]]:
    """Return the lines of an event, once there are so many."""

    def lines() -> list[dict[str, object]]:
        found = [line for line in log.read_text().splitlines() if event in line]
        return [json.loads(line) for line in found]

    await until(lambda: len(lines()) >= times)
    return lines()


async def prompt_of_turn(service: ServiceProcess, double: ProviderDouble) -> str:
    """Return the system prompt with which a new session is answered."""
    session = await service.new_session("own")
    (await service.send(session, "hi")).raise_for_status()
    return str(double.requests[-1].prompt[0]["content"])


async def test_a_changed_file_answers_and_an_invalid_one_leaves_the_agent_as_it_was(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    agents = prepared(folder)
    async with run_service(folder, {**on_double, "AGENTS_DIR": str(agents)}) as service:
        assert await prompt_of_turn(service, provider_double) == "first"

        write(agents, "second")
        await told(service.log, "agent files read again")
        assert await prompt_of_turn(service, provider_double) == "second"

        write(agents, "third", "max_tool_rounds: many\n")
        (refused,) = await told(service.log, "agent files refused")
        assert refused["error"] == f"{agents}/own.yaml: max_tool_rounds: 'many' must be a whole number"
        assert await is_ready(service.client)
        assert await prompt_of_turn(service, provider_double) == "second"

        write(agents, "fourth")
        await told(service.log, "agent files read again", 2)
        assert await prompt_of_turn(service, provider_double) == "fourth"

        (agents / "reread_tools.py").write_text(TOOL.replace("return 1", "return 2222"))
        (changed,) = await told(service.log, "tool modules changed")
        assert changed["files"] == ["reread_tools.py"]


async def test_a_removed_agent_fails_its_turns_and_keeps_their_messages(
    folder: Path, on_double: Mapping[str, str]
) -> None:
    agents = prepared(folder)
    async with run_service(folder, {**on_double, "AGENTS_DIR": str(agents)}) as service:
        session = await service.new_session("own")
        (agents / "own.yaml").unlink()
        (line,) = await told(service.log, "agent files read again")
        assert (line["changed"], line["removed"]) == ([], ["own"])

        refused = await service.send(session, "are you there?")

        problem = refused.json()
        assert (refused.status_code, problem["type"]) == (404, "/problems/not_found")
        assert "There is no agent 'own'. Known agents: assistant, " in problem["detail"]
        assert [message["content"] for message in await service.history(session)] == ["are you there?"]


async def test_a_worker_of_its_own_follows_the_files_too(
    folder: Path, on_double: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    agents = prepared(folder)
    environment = {**on_double, "AGENTS_DIR": str(agents)}
    async with run_service(folder, environment, "--no-worker") as service, run_worker(folder, environment):
        write(agents, "second")
        await told(folder / "worker.log", "agent files read again")

        assert await prompt_of_turn(service, provider_double) == "second"


async def test_files_are_read_at_start_only_if_the_setting_says_so(folder: Path, on_double: Mapping[str, str]) -> None:
    agents = prepared(folder)
    environment = {**on_double, "AGENTS_DIR": str(agents), "AGENTS_RELOAD": "false"}
    async with run_service(folder, environment) as service, run_worker(folder, {**environment, "AGENTS_RELOAD": ""}):
        write(agents, "second")
        await told(folder / "worker.log", "agent files read again")

        described = (await service.client.get("/v1/agents")).raise_for_status().json()

    assert "agent files read again" not in service.log.read_text()
    assert {agent["description"] for agent in described["data"] if agent["name"] == "own"} == {"first"}
