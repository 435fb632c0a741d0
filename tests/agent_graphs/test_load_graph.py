"""Graphs that cannot be run are refused at the start of the service, by name, and agent files with them too."""

from pathlib import Path

import pytest

from agent_graphs.playing import MODULE
from throughline.agent_graphs.imported_graphs import ImportedGraphs
from throughline.agents.registry import AgentDefaults, AgentRegistry, load_agents
from throughline.domain.errors import AgentInvalid, InvalidInput, SettingInvalid
from throughline.domain.prompt import Overrides
from throughline.llm.registry import ModelRegistry
from throughline.turn.apply_overrides import apply_overrides

GRAPHS = ImportedGraphs(lambda _: ())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("uncompiled", "is not compiled"),
        ("without_messages", "has no `messages` in its state"),
        ("with_breakpoint", "has breakpoints (node)"),
        ("wants_more", "wants 'retriever'; a function is given `model` and `tools` only"),
        ("broken", "failed with ValueError: no such index"),
        ("number", "is int, not a compiled graph"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_a_graph_that_cannot_be_run_is_refused_by_name(name: str, problem: str) -> None:
    with pytest.raises(SettingInvalid) as refused:
        GRAPHS.check(f"{MODULE}:{name}", [])

    assert refused.value.detail.startswith(f"graph '{MODULE}:{name}'")
    assert problem in refused.value.detail


def test_tools_of_the_file_need_a_function_that_takes_them() -> None:
    for name in ("react", "echo"):
        with pytest.raises(SettingInvalid, match="cannot be given the agent's `tools`"):
            GRAPHS.check(f"{MODULE}:{name}", ["current_time"])


def test_the_tool_that_waits_for_a_person_is_no_tool_of_a_graph() -> None:
    with pytest.raises(SettingInvalid, match="cannot be given the tool ask_user"):
        GRAPHS.check(f"{MODULE}:with_tools", ["ask_user"])


def load(folder: Path, text: str) -> AgentRegistry:
    (folder / "graph.yaml").write_text(text)
    return load_agents([folder], AgentDefaults(usage_threshold=0.8, summary_model=""))


def test_an_agent_file_names_a_graph(tmp_path: Path) -> None:
    agent = load(tmp_path, "name: planner\ngraph: my_agents:planner\n").get("planner")

    assert (agent.graph, agent.client_tools) == ("my_agents:planner", False)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("graph: my agents", "must be a graph of yours as module:attribute"),
        ("needs_approval: [x]\ntools: [x]\ngraph: a:b", "cannot be used with needs_approval"),
        ("mcp_servers: {x: {command: [y]}}\ngraph: a:b", "cannot be used with mcp_servers"),
        ("recall: user\ngraph: a:b", "cannot be used with recall: user"),
    ],
)
def test_what_a_graph_cannot_have_is_refused_in_the_file(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(AgentInvalid, match=problem):
        load(tmp_path, f"name: planner\n{line}\n")


def test_a_request_cannot_override_single_calls_of_a_graph(tmp_path: Path) -> None:
    agent = load(tmp_path, "name: planner\ngraph: a:b\n").get("planner")

    with pytest.raises(InvalidInput, match="is a graph, which decides on its own calls"):
        apply_overrides(agent, Overrides(tool_choice="none"), ModelRegistry())
