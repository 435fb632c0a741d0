"""Which agents there are, and which values they have: shipped files, the operator's folders, the settings behind."""

from pathlib import Path

import pytest

from throughline.agents.registry import AgentDefaults, AgentRegistry, load_agents
from throughline.context.view.placeholder_texts import RECALL_TOOLS
from throughline.domain.errors import AgentInvalid, NotFound, SettingInvalid

DEFAULTS = AgentDefaults(usage_threshold=0.7, summary_model="")


def load(folder: Path, text: str, defaults: AgentDefaults = DEFAULTS) -> AgentRegistry:
    (folder / "agent.yaml").write_text(text)
    return load_agents([folder], defaults)


def test_the_shipped_agents_follow_the_settings() -> None:
    agents = load_agents([], AgentDefaults(usage_threshold=0.66, summary_model="openai:small"))

    assert [agent.name for agent in agents.all()] == ["assistant", "quick_assistant", "researcher"]
    for agent in agents.all():
        assert agent.model == ""
        assert agent.context.usage_threshold == 0.66
        assert agent.context.summary.model == "openai:small"
        assert agent.tools == ("current_time", "calculator", *RECALL_TOOLS)


def test_a_summary_model_of_the_settings_is_not_looked_for_at_the_agents_server(tmp_path: Path) -> None:
    agent = load(
        tmp_path,
        "name: local\nmodel: openai:local\nbase_url: http://127.0.0.1:8080/v1\n",
        AgentDefaults(usage_threshold=0.8, summary_model="openai:small"),
    ).get("local")

    assert (agent.context.summary.model, agent.context.summary.base_url) == ("openai:small", None)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("context: {max_messages_before_summary: 40}", "http://summaries/v1"),
        ("context: {summary: {model: openai:tiny}}", "http://beside/openai:tiny"),
        ("model: openai:big\ncontext: {summary: {model: openai:tiny}}", None),
        ("base_url: http://own/v1\ncontext: {summary: {model: openai:tiny}}", "http://own/v1"),
    ],
)
def test_a_summary_model_lives_where_whoever_named_it_says(tmp_path: Path, written: str, address: str | None) -> None:
    defaults = AgentDefaults(0.8, "openai:small", "http://summaries/v1", lambda model: f"http://beside/{model}")

    assert load(tmp_path, f"name: local\n{written}\n", defaults).get("local").context.summary.base_url == address


def test_the_agents_own_values_win_over_the_settings(tmp_path: Path) -> None:
    written = "name: own\nmodel: openai:a\ncontext:\n  usage_threshold: 0.9\n  summary:\n    model: openai:b"

    agent = load(tmp_path, written, AgentDefaults(usage_threshold=0.5, summary_model="openai:c")).get("own")

    assert (agent.model, agent.context.usage_threshold, agent.context.summary.model) == ("openai:a", 0.9, "openai:b")


def test_a_folder_adds_agents_and_overrides_shipped_ones(tmp_path: Path) -> None:
    agents = load(tmp_path, "name: assistant\nsystem_prompt: Mine.")

    assert agents.get("assistant").system_prompt == "Mine."
    assert len(agents.all()) == 3


def test_only_visible_yaml_files_are_agents(tmp_path: Path) -> None:
    for name in ("notes.txt", ".hidden.yaml", "agent.yaml~"):
        (tmp_path / name).write_text("not an agent")
    (tmp_path / "more.yml").write_text("name: more")

    assert load_agents([tmp_path], DEFAULTS).get("more").name == "more"


def test_an_unknown_agent_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r"'nobody'.*assistant, quick_assistant, researcher"):
        load_agents([], DEFAULTS).get("nobody")


def test_two_files_of_one_folder_cannot_share_a_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: twin")
    (tmp_path / "b.yaml").write_text("name: twin")

    with pytest.raises(AgentInvalid, match=r"b\.yaml:\n  name: 'twin' is the name of a\.yaml too"):
        load_agents([tmp_path], DEFAULTS)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nowhere")

    with pytest.raises(AgentInvalid, match=r"dangling\.yaml: cannot be read \(No such file"):
        load_agents([tmp_path], DEFAULTS)


def test_what_is_no_regular_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "device.yaml").symlink_to("/dev/zero")

    with pytest.raises(AgentInvalid, match=r"device\.yaml: is not a regular file"):
        load_agents([tmp_path], DEFAULTS)


def test_a_folder_with_the_name_of_an_agent_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").mkdir()

    with pytest.raises(AgentInvalid, match=r"agent\.yaml: is not a regular file; replace it with a file"):
        load_agents([tmp_path], DEFAULTS)


@pytest.mark.parametrize("name", ["missing", "file.txt"])
def test_a_missing_folder_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("")

    with pytest.raises(SettingInvalid, match=f"AGENTS_DIR.*{name}"):
        load_agents([tmp_path / name], DEFAULTS)
