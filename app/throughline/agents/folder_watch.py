"""Changes in the folder of agent files: polled, so that mounted folders and replaced files are seen too.

A module of its own, because it reads only names, times and sizes; `registry.py` reads the files.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from throughline.agents.registry import agent_paths
from throughline.domain.errors import SettingInvalid

MOST_UNSETTLED_POLLS = 5
"""Polls in a row that find another state, after which changed agent files are reported."""

FileState: TypeAlias = tuple[int, ...] | None
"""What differs after a file was written or replaced; None for a file that cannot be found."""

FolderState: TypeAlias = Mapping[str, FileState]


@dataclass(frozen=True, slots=True)
class FolderChanges:
    """What has changed since the last poll. `modules` names the Python files that this process had imported."""

    has_agents: bool = False
    modules: tuple[str, ...] = ()


class FolderWatch:
    """Watch on the agent files of a folder, and on the modules of tools and hooks that were imported from it."""

    def __init__(self, folder: Path) -> None:
        """Note the present state; whatever is read of the folder afterwards is at least as new."""
        self._folder = folder
        self._module_root = str(folder.resolve())
        self._read = self._found = _agent_files(folder)
        self._unsettled_polls = 0
        self._modules: dict[str, FileState] = {}

    def poll(self) -> FolderChanges:
        """Return the changes since the last call. It blocks on the file system, so it runs in a thread.

        Changed agent files are reported by the second poll that finds them in the same state: a file may still be
        being written at the first one. After MOST_UNSETTLED_POLLS they are reported nevertheless, so that a file which
        changes all the time does not keep back the others.
        """
        found = _agent_files(self._folder)
        self._unsettled_polls = 0 if found == self._found else self._unsettled_polls + 1
        is_settled = self._unsettled_polls in {0, MOST_UNSETTLED_POLLS}
        if is_settled:
            self._unsettled_polls = 0
        self._found = found
        has_agents = is_settled and found != self._read
        if has_agents:
            self._read = found
        return FolderChanges(has_agents, self._changed_modules())

    def _changed_modules(self) -> tuple[str, ...]:
        now = {file: _state(file) for file in _imported_files(self._module_root)}
        changed = [Path(file).name for file, state in now.items() if self._modules.get(file, state) != state]
        self._modules = now
        return tuple(sorted(changed))


def _agent_files(folder: Path) -> FolderState:
    """Return the states of the folder's agent files; a folder that cannot be read has the state of none."""
    try:
        return {str(path): _state(str(path)) for path in agent_paths(folder)}
    except SettingInvalid:
        return {str(folder): None}


def _state(path: str) -> FileState:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _imported_files(root: str) -> list[str]:
    """Return the files of the modules that were imported from the folder `root` or from packages in it.

    Modules that were imported from elsewhere below it, such as a virtual environment, are left out.
    """
    files = []
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # other ways may run code of the module
        location = f"{root}{os.sep}{name.replace('.', os.sep)}"
        if file in {f"{location}.py", f"{location}{os.sep}__init__.py"}:
            files.append(file)
    return files
