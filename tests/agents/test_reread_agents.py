"""Agent files that change while the service runs: what is read again and refused, and what operators read of it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.scripted_model import Call, Say, Step
from fakes.stage import AGENT, make_tool_box, open_stage
from fakes.tool_servers import PlayedServers
from throughline.agents.registry import AgentDefaults, FolderWatch, load_agents
from throughline.assembly.reread_agents import AgentRereading, one_line
from throughline.context.calibration import Calibration
from throughline.db.database import Database
from throughline.domain.errors import DatabaseUnavailable, NotFound
from throughline.domain.message import ToolCall
from throughline.domain.prompt import (
    ModelRequest,
)
from throughline.domain.run import RunStatus
from throughline.llm.counters import make_counter
from throughline.llm.registry import ModelRegistry
from throughline.tools.recall import make_recall_tools

DEFAULTS = AgentDefaults(usage_threshold=0.8, summary_model="")
ONE = "name: one\nsystem_prompt: first\n"
Logs = Sequence[Mapping[str, Any]]  # Any: fields of log lines
LINES = ("agent files refused", "agent files read again", "agent files not checked")


class ForgetfulDatabase:
    """Calibrations in a database that is away."""

    async def load(self, key: str) -> Calibration | None:
        raise DatabaseUnavailable(f"no {key}")

    async def save(self, key: str, calibration: Calibration) -> None:
        raise AssertionError((key, calibration))


async def open_rereading(
    database: Database, folder: Path, needed: Mapping[str, str] = MappingProxyType({})
) -> AgentRereading:
    """Return the re-reading of a folder with the agent `one`, with real models."""
    (folder / "one.yaml").write_text(ONE)
    watch = FolderWatch(folder)
    tools = make_tool_box(further=make_recall_tools(database.history, make_counter("chars").count))
    stage = await open_stage(database, tools=tools)
    dependencies = replace(stage.dependencies, models=ModelRegistry(), agents=load_agents([folder], DEFAULTS))
    return AgentRereading(watch, lambda: load_agents([folder], DEFAULTS), DEFAULTS, dependencies, needed)


async def polled(rereading: AgentRereading) -> Logs:
    """Poll until what was changed is settled; return the log lines on agent files."""
    with capture_logs() as logs:
        for _ in range(3):
            await rereading.poll()
    return [line for line in logs if line["event"] in LINES]


async def test_a_changed_an_added_and_a_removed_file_take_effect(database: Database, tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").write_text("name: gone\n")
    rereading = await open_rereading(database, tmp_path)
    agents = rereading.dependencies.agents
    kept = agents.get("one")

    (tmp_path / "one.yaml").write_text("name: one\nsystem_prompt: second\n")
    (tmp_path / "two.yaml").write_text("name: two\n")
    (tmp_path / "gone.yaml").unlink()
    logs = await polled(rereading)

    assert (agents.get("one").system_prompt, kept.system_prompt) == ("second", "first")
    assert agents.get("two").name == "two"
    with pytest.raises(NotFound, match=r"no agent 'gone'.*assistant, one,"):
        agents.get("gone")
    assert [(line["event"], line["changed"], line["removed"]) for line in logs] == [
        ("agent files read again", ["one", "two"], ["gone"])
    ]


async def test_only_servers_that_agents_still_name_stay_connected(database: Database, tmp_path: Path) -> None:
    rereading = await open_rereading(database, tmp_path)
    servers = PlayedServers()
    rereading.dependencies = replace(rereading.dependencies, tool_servers=servers)

    (tmp_path / "one.yaml").write_text("name: one\nmcp_servers: {files: {command: [files]}, git: {command: [git]}}\n")
    await polled(rereading)
    assert servers.kept == {"files", "git"}

    (tmp_path / "one.yaml").write_text("name: one\nmcp_servers: {files: {command: [files]}}\n")
    await polled(rereading)
    assert servers.kept == {"files"}


async def test_a_file_that_replaced_a_shipped_agent_gives_it_back(database: Database, tmp_path: Path) -> None:
    (tmp_path / "assistant.yaml").write_text("name: assistant\nsystem_prompt: ours\n")
    rereading = await open_rereading(database, tmp_path)
    assert rereading.dependencies.agents.get("assistant").system_prompt == "ours"

    (tmp_path / "assistant.yaml").unlink()
    await polled(rereading)

    assert rereading.dependencies.agents.get("assistant").system_prompt.startswith("You are a helpful assistant")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: one\nmax_tool_rounds: 1000\n", r".*/one\.yaml: max_tool_rounds: 1000 must be at most 100"),
        ("name: one\nmodel: nobody:x\n", "agent one: model: model 'nobody:x' names no known provider"),
        ("name: one\ntools: [nosuch]\n", "agent one: tools: There is no tool named 'nosuch'; allowed: .*"),
        (
            "name: one\ncontext: {pre_compact: 'nosuch:hook'}\n",
            "agent one: pre_compact 'nosuch:hook': there is no such hook",
        ),
        ("name: one\ncontext: {token_counter: 'nosuch:count'}\n", "agent one: token counter 'nosuch:count'.*no module"),
        (f"name: one\nsystem_prompt: {'word ' * 2000}\ncontext: {{window: 2000}}\n", "agent one: .*2,?000"),
        ("name: assistant\n", ""),
    ],
    ids=["field", "model", "tool", "hook", "counter", "window", "valid-but-another-is-not"],
)
async def test_an_invalid_file_changes_nothing_and_is_told_once(
    database: Database, tmp_path: Path, text: str, told: str
) -> None:
    rereading = await open_rereading(database, tmp_path)
    before = rereading.dependencies.agents.all()
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "two.yaml").write_text("name: two\n" if told else "name: two\nnosuch: 1\n")

    logs = await polled(rereading)

    assert rereading.dependencies.agents.all() == before
    assert [line["event"] for line in logs] == ["agent files refused"]
    (line,) = logs
    assert "\n" not in line["error"]
    assert line["hint"] == "the agents stay as they were"
    with capture_logs() as again:
        await rereading.poll()
    assert again == []
    assert re.match(told or r".*/two\.yaml: nosuch: no such field; allowed: ", line["error"]), line["error"]


async def test_operators_read_from_which_file_an_agent_is_and_what_is_wrong_with_files(
    database: Database, tmp_path: Path
) -> None:
    rereading = await open_rereading(database, tmp_path)
    agents = rereading.dependencies.agents
    (tmp_path / "two.yaml").write_text("name: two\n")
    await polled(rereading)
    first = {one.agent: one for one in agents.describe_files().agents}

    (tmp_path / "one.yaml").write_text("name: one\nmax_tool_rounds: 1000\nnosuch: 1\n")
    (tmp_path / "copy.yaml").write_text("name: two\n")
    await polled(rereading)
    refused = agents.describe_files()
    (tmp_path / "copy.yaml").unlink()
    (tmp_path / "one.yaml").write_text("name: one\nsystem_prompt: second\n")
    await polled(rereading)
    mended = agents.describe_files()

    assert (first["one"].file, first["two"].file, first["assistant"].file) == ("one.yaml", "two.yaml", None)
    assert first["two"].read_at is not None
    assert refused.agents == tuple(first.values())
    assert refused.refused is not None
    told = {one.file: one.detail for one in refused.refused.errors}
    assert told.keys() == {"one.yaml", "two.yaml"}
    assert told["one.yaml"].startswith("max_tool_rounds: 1000 must be at most 100; nosuch: no such field")
    assert told["two.yaml"] == "name: 'two' is the name of copy.yaml too; choose another"
    assert str(tmp_path) not in str(refused)
    assert mended.refused is None
    assert next(one for one in mended.agents if one.agent == "two") == first["two"]


async def test_a_file_whose_name_is_no_text_is_told_with_a_replacement_character(
    database: Database, tmp_path: Path
) -> None:
    rereading = await open_rereading(database, tmp_path)
    agents, odd = rereading.dependencies.agents, os.fsdecode(b"odd\xff.yaml")
    (tmp_path / odd).write_text("name: odd\n")
    await polled(rereading)
    used = agents.describe_files()
    (tmp_path / odd).write_text(f"name: odd\ntools: [nosuch]\nsystem_prompt: {tmp_path}\nnosuch: 1\n")
    await polled(rereading)
    refused = agents.describe_files().refused

    assert [one.file for one in used.agents if one.agent == "odd"] == ["odd\N{REPLACEMENT CHARACTER}.yaml"]
    assert refused is not None
    assert [one.file for one in refused.errors] == ["odd\N{REPLACEMENT CHARACTER}.yaml"]
    assert str(refused).encode("utf-8")


async def test_an_error_that_is_found_after_reading_names_the_agent(database: Database, tmp_path: Path) -> None:
    rereading = await open_rereading(database, tmp_path)
    (tmp_path / "one.yaml").write_text("name: one\ntools: [nosuch]\n")
    await polled(rereading)

    refused = rereading.dependencies.agents.describe_files().refused
    assert refused is not None
    assert [(one.file, one.detail[:19]) for one in refused.errors] == [(None, "agent one: tools: T")]


async def test_a_folder_that_is_gone_is_told_without_its_path(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    rereading = await open_rereading(database, folder)
    folder.rename(tmp_path / "elsewhere")
    await polled(rereading)

    refused = rereading.dependencies.agents.describe_files().refused
    assert refused is not None
    assert refused.errors[0].detail.startswith("AGENTS_DIR: the folder cannot be read")


async def test_a_mended_file_is_told_even_if_the_agents_are_those_of_before(database: Database, tmp_path: Path) -> None:
    rereading = await open_rereading(database, tmp_path)
    (tmp_path / "one.yaml").write_text("name: [")
    assert [line["event"] for line in await polled(rereading)] == ["agent files refused"]

    (tmp_path / "one.yaml").write_text(ONE)

    assert [line["event"] for line in await polled(rereading)] == ["agent files read again"]
    (tmp_path / "one.yaml").touch()
    assert await polled(rereading) == []


async def test_a_file_without_the_agent_of_slack_is_refused_as_at_start(database: Database, tmp_path: Path) -> None:
    rereading = await open_rereading(database, tmp_path, {"SLACK_AGENT": "one"})
    (tmp_path / "one.yaml").unlink()

    (line,) = await polled(rereading)

    assert line["error"].startswith("SLACK_AGENT: There is no agent 'one'. Known agents: assistant, ")
    assert rereading.dependencies.agents.get("one").name == "one"


async def test_files_that_the_database_kept_from_being_checked_are_checked_later(
    database: Database, tmp_path: Path
) -> None:
    rereading = await open_rereading(database, tmp_path)
    present, agents = rereading.dependencies, rereading.dependencies.agents
    (tmp_path / "one.yaml").write_text("name: one\nsystem_prompt: second\n")
    rereading.dependencies = replace(present, calibrations=ForgetfulDatabase())
    away = await polled(rereading)
    assert [line["event"] for line in away] == ["agent files not checked"]
    assert agents.get("one").system_prompt == "first"

    rereading.dependencies = present
    logs = await polled(rereading)

    assert [line["event"] for line in logs] == ["agent files read again"]
    assert agents.get("one").system_prompt == "second"


async def test_a_running_turn_keeps_the_agent_it_began_with(database: Database) -> None:
    first = replace(AGENT, system_prompt="first")
    stage = await open_stage(database, agent=first)
    steps: list[Step] = [Call((ToolCall("1", "calculator", '{"expression": "1+1"}'),)), Say("two"), Say("again")]

    def change_and_answer(_request: ModelRequest) -> Step:
        stage.dependencies.agents.replace_all([replace(first, system_prompt="second", max_tool_rounds=0)])
        return steps.pop(0)

    stage.model.by_request = change_and_answer

    statuses = [(await stage.turn(text)).status for text in ("what is 1+1?", "and now?")]

    assert statuses == [RunStatus.SUCCEEDED] * 2
    assert [request.prompt.system for request in stage.model.requests] == ["first", "first", "second"]
    assert [request.may_call_tools for request in stage.model.requests] == [True, True, False]


def test_an_error_of_several_files_is_told_in_one_line() -> None:
    detail = "/a/x.yaml:\n  model: 5 must be text\n  tools: 3 must be a list\n/a/y.yaml: the file is empty"

    assert one_line(detail) == "/a/x.yaml: model: 5 must be text; tools: 3 must be a list; /a/y.yaml: the file is empty"
