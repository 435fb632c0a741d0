"""Changes in the folder of agent files: which are seen, when they are settled, and which modules were imported."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from throughline.agents.folder_watch import MOST_UNSETTLED_POLLS, FolderChanges, FolderWatch
from throughline.execution.call_plugin import add_plugin_folder

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
