"""Which agents there are, and which values they have: shipped files, the operator's folders, the settings behind."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from throughline.agents.registry import (
    MOST_UNSETTLED_POLLS,
    AgentDefaults,
    AgentRegistry,
    FolderChanges,
    FolderWatch,
    load_agents,
)
from throughline.context.view.placeholder_texts import RECALL_TOOLS
from throughline.domain.errors import AgentInvalid, NotFound, SettingInvalid
from throughline.execution.call_plugin import add_plugin_folder

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
def test_a_summary_model_lives_at_the_address_named_with_it(tmp_path: Path, written: str, address: str | None) -> None:
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


NOTHING = FolderChanges()
AGENTS = FolderChanges(has_agents=True)


def write(folder: Path, name: str = "agent.yaml", text: str = "name: one\n") -> None:
    (folder / name).write_text(text)


def replace_as_editors_do(folder: Path) -> None:
    """Put a file of the same size and time in the place of the other."""
    old = (folder / "agent.yaml").stat()
    write(folder, "agent.yaml~", "name: two\n")
    os.utime(folder / "agent.yaml~", ns=(old.st_atime_ns, old.st_mtime_ns))
    (folder / "agent.yaml~").rename(folder / "agent.yaml")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write(folder, text="name: changed\n"),
        lambda folder: write(folder, "other.yml"),
        lambda folder: (folder / "agent.yaml").unlink(),
        lambda folder: (folder / "agent.yaml").rename(folder / "renamed.yaml"),
        replace_as_editors_do,
    ],
    ids=["written", "added", "removed", "renamed", "replaced"],
)
def test_a_change_is_told_once_and_only_when_it_is_settled(tmp_path: Path, change: Callable[[Path], object]) -> None:
    write(tmp_path)
    watch = FolderWatch(tmp_path)
    assert watch.poll() == NOTHING

    change(tmp_path)

    assert [watch.poll() for _ in range(4)] == [NOTHING, AGENTS, NOTHING, NOTHING]


def test_a_file_that_is_still_written_is_not_told(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path)
    told = []
    for length in range(1, 4):
        write(tmp_path, text="name: one\n" * length)
        told.append(watch.poll())

    assert told == [NOTHING] * 3
    assert watch.poll() == AGENTS


def test_a_change_that_is_taken_back_before_it_is_settled_is_none(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path)
    write(tmp_path)
    assert watch.poll() == NOTHING
    (tmp_path / "agent.yaml").unlink()

    assert [watch.poll(), watch.poll()] == [NOTHING, NOTHING]


def test_files_that_are_no_agent_files_are_not_told(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path)
    for name in ("notes.txt", ".agent.yaml.swp", ".hidden.yaml", "never_imported_tools.py"):
        write(tmp_path, name)

    assert [watch.poll(), watch.poll()] == [NOTHING, NOTHING]


def test_a_folder_that_goes_away_and_comes_back_is_told_twice(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    write(folder)
    watch = FolderWatch(folder)

    folder.rename(tmp_path / "elsewhere")
    gone = [watch.poll(), watch.poll()]
    (tmp_path / "elsewhere").rename(folder)

    assert [*gone, watch.poll(), watch.poll()] == [NOTHING, AGENTS, NOTHING, AGENTS]


def test_changed_and_removed_modules_that_were_imported_are_told(tmp_path: Path) -> None:
    write(tmp_path, "watched_tools.py", "A = 1\n")
    write(tmp_path, "other_watched_tools.py", "A = 1\n")
    (tmp_path / "watched_package").mkdir()
    write(tmp_path / "watched_package", "__init__.py", "")
    write(tmp_path / "watched_package", "inner.py", "A = 1\n")
    add_plugin_folder(tmp_path)
    watch = FolderWatch(tmp_path)
    for name in ("watched_tools", "other_watched_tools", "watched_package.inner"):
        importlib.import_module(name)
    assert watch.poll() == NOTHING

    write(tmp_path, "watched_tools.py", "A = 2222\n")
    (tmp_path / "watched_package" / "inner.py").unlink()

    assert watch.poll() == FolderChanges(modules=("inner.py", "watched_tools.py"))
    assert watch.poll() == NOTHING


def test_a_file_that_changes_all_the_time_does_not_keep_back_the_others(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path)
    (tmp_path / "new.yaml").write_text("name: new")
    told = []
    for length in range(MOST_UNSETTLED_POLLS):
        (tmp_path / "busy.yaml").write_text(f"name: busy # {'x' * length}")
        told.append(watch.poll().has_agents)

    assert told == [*[False] * (MOST_UNSETTLED_POLLS - 1), True]
