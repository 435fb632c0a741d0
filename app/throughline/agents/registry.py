"""Registry of the agents: the shipped ones and the operator's, found by name."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from throughline.agents.context_schema import ContextSection, Section
from throughline.agents.definition import AgentDefinition, DailyBudget, OtherModel
from throughline.agents.read_file import read_agent_file
from throughline.agents.yaml_schema import AgentFile, OtherModelSection
from throughline.context.budget import TARGET_BELOW_THRESHOLD
from throughline.context.policy import ContextPolicy, ImportanceWeights, PrunePolicy, Strategy, SummaryPolicy
from throughline.domain.errors import AgentInvalid, NotFound, SettingInvalid
from throughline.domain.message import clean_text
from throughline.domain.service_status import AgentFileError, AgentFiles, AgentOrigin, RefusedAgentFiles

SHIPPED = Path(__file__).parent / "shipped"
ENDINGS = frozenset({".yaml", ".yml"})
DEFAULT_TARGET = ContextPolicy().target
DEFAULT_COUNTER = ContextPolicy().token_counter
Filled = TypeVar(
    "Filled", AgentDefinition, OtherModel, DailyBudget, ContextPolicy, PrunePolicy, SummaryPolicy, ImportanceWeights
)


def _no_address(_model: str) -> str | None:
    return None


def _default_counter(_model: str) -> str:
    return DEFAULT_COUNTER


@dataclass(frozen=True, slots=True)
class AgentDefaults:
    """Values for agents whose file does not define them.

    - `summary_model` writes summaries; '' stands for the agent's own model. Its address is `summary_base_url`, and
      `summary_api_key_env` names the variable with the key for that address.
    - `inherited_default_base_url` returns the address of a model that is named without one: the default model's server
      if both are of the same provider, else None, which stands for the provider's own address.
    - `counter_of` returns the name of a model's token counter; '' is the default model.
    """

    usage_threshold: float
    summary_model: str
    summary_base_url: str | None = None
    inherited_default_base_url: Callable[[str], str | None] = _no_address
    summary_api_key_env: str | None = None
    counter_of: Callable[[str], str] = _default_counter


NO_FILES: Mapping[str, str] = MappingProxyType({})


class AgentRegistry:
    """The agents of this process. All are replaced together when agent files have changed.

    `files` has the names of the operator's files by the names of their agents.
    """

    def __init__(self, agents: Iterable[AgentDefinition], files: Mapping[str, str] = NO_FILES) -> None:
        """Keep the agents. If two have the same name, the later one replaces the earlier."""
        self._agents: dict[str, AgentDefinition] = {}
        self._read_at: dict[str, datetime | None] = {}
        self.replace_all(agents, files)

    def replace_all(
        self, agents: Iterable[AgentDefinition], files: Mapping[str, str] = NO_FILES, read_at: datetime | None = None
    ) -> None:
        """Keep these agents instead, which were read at this time. Callers that have a definition of before keep it."""
        found, before = {agent.name: agent for agent in agents}, self._agents
        unchanged = {name for name, agent in found.items() if before.get(name) == agent and self._read_at[name]}
        self._read_at = {name: self._read_at[name] if name in unchanged else read_at for name in found}
        self._agents = {name: found[name] for name in sorted(found)}
        self.files = files
        self._refused: RefusedAgentFiles | None = None

    def refuse(self, errors: Sequence[AgentFileError], at: datetime) -> None:
        """Note that the files as they are now cannot be used. The agents stay as they are."""
        self._refused = RefusedAgentFiles(at, tuple(errors))

    def describe_files(self) -> AgentFiles:
        """Return the agents' files, ordered by agent, and the errors of files that cannot be used."""
        origins = (AgentOrigin(name, self.files.get(name), self._read_at[name]) for name in self._agents)
        return AgentFiles(tuple(origins), self._refused)

    def get(self, name: str) -> AgentDefinition:
        """Return the agent with that name. Raises NotFound, which lists the known agents."""
        agent = self._agents.get(name)
        if agent is None:
            raise NotFound(f"There is no agent {name[:80]!r}. Known agents: {', '.join(self._agents) or 'none'}.")
        return agent

    def all(self) -> tuple[AgentDefinition, ...]:
        """Return the agents, ordered by name."""
        return tuple(self._agents.values())


def load_agents(folders: Sequence[Path], defaults: AgentDefaults) -> AgentRegistry:
    """Load the shipped agents, then those of each folder, which add to them or replace them by name.

    Raises SettingInvalid for a folder that cannot be read, AgentInvalid with all errors of all files.
    """
    agents: list[AgentDefinition] = []
    files: dict[str, str] = {}
    wrong: dict[Path, str] = {}
    for folder in (SHIPPED, *folders):
        loaded, refused = _load_folder(folder, defaults)
        agents += loaded.values()
        files |= {} if folder == SHIPPED else {agent.name: clean_text(path.name) for path, agent in loaded.items()}
        wrong |= refused
    if wrong:
        raise _invalid(wrong)
    return AgentRegistry(agents, files)


def _invalid(wrong: Mapping[Path, str]) -> AgentInvalid:
    """Return the error of files that cannot be used; each file's own begins with its path."""
    error = AgentInvalid("\n".join(wrong.values()))
    error.by_file = {
        clean_text(path.name): clean_text(detail.removeprefix(f"{path}:").strip()) for path, detail in wrong.items()
    }
    return error


def _load_folder(folder: Path, defaults: AgentDefaults) -> tuple[dict[Path, AgentDefinition], dict[Path, str]]:
    """Return the folder's agents, and the errors of the files that cannot be used, each by its path."""
    origins: dict[str, Path] = {}
    agents: dict[Path, AgentDefinition] = {}
    wrong: dict[Path, str] = {}
    for path in agent_paths(folder):
        try:
            agent = _define(path, read_agent_file(path), defaults)
            _check_new(path, agent.name, origins)
        except AgentInvalid as error:
            wrong[path] = error.detail
            continue
        origins[agent.name] = path
        agents[path] = agent
    return agents, wrong


def agent_paths(folder: Path) -> list[Path]:
    """Return the paths of the folder's agent files, by name. Raises SettingInvalid if it cannot be read."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise SettingInvalid(
            f"AGENTS_DIR: the folder {folder} cannot be read ({why}); name an existing folder or leave it empty"
        ) from error
    return [path for path in entries if path.suffix in ENDINGS and path.name[0] != "."]


def _check_new(path: Path, name: str, origins: dict[str, Path]) -> None:
    if name in origins:
        raise AgentInvalid(f"{path}:\n  name: {name!r} is the name of {origins[name].name} too; choose another")


def _define(path: Path, file: AgentFile, defaults: AgentDefaults) -> AgentDefinition:
    own_models = [_other_model(section, _counter(file, section.model, defaults)) for section in file.override_models]
    decided = {
        "model": file.model or "",
        "tools": tuple(file.tools),
        "context": _policy(path, file, defaults),
        "parameters": file.parameters.read(),
        "fallback_models": tuple(map(_other_model, file.fallback_models)),
        "overrides": frozenset(file.overrides),
        "override_models": tuple(own_models),
        "needs_approval": frozenset(file.needs_approval),
        "mcp_servers": tuple(section.read(name) for name, section in file.mcp_servers.items()),
        "daily_budget": _filled(DailyBudget, file.daily_budget),
        "client_tools": file.client_tools and not file.graph,
    }
    return _filled(AgentDefinition, file, **decided)


def _other_model(section: OtherModelSection, token_counter: str = "") -> OtherModel:
    return _filled(OtherModel, section, parameters=section.parameters.read(), token_counter=token_counter)


def _policy(path: Path, file: AgentFile, defaults: AgentDefaults) -> ContextPolicy:
    """Return the agent's context policy: the agent's value if written, else the setting, else the default."""
    section = file.context
    threshold = section.usage_threshold or defaults.usage_threshold
    _check_target(path, section, threshold)
    return _filled(
        ContextPolicy,
        section,
        usage_threshold=threshold,
        target=_default_target(threshold) if section.target is None else section.target,
        prune=_filled(PrunePolicy, section.prune),
        summary=_summary_policy(file, defaults),
        importance=_filled(ImportanceWeights, section.importance),
        token_counter=_counter(file, file.model or "", defaults),
        **_recent(section),
    )


def _default_target(threshold: float) -> float:
    """Return the target of an agent that names none, below the threshold as the budget has it."""
    return DEFAULT_TARGET if threshold > DEFAULT_TARGET else round(TARGET_BELOW_THRESHOLD * threshold, 4)


def _recent(section: ContextSection) -> dict[str, int]:
    """Return the number of newest messages to keep, in the policy field that the strategy uses.

    In the file, `keep_recent` is its name for every strategy.
    """
    default, least = ContextPolicy().keep_recent, section.min_recent_messages
    if section.strategy is Strategy.TRUNCATION:
        return {"keep_recent": section.keep_recent or default, "min_recent_messages": least}
    return {"keep_recent": default, "min_recent_messages": section.keep_recent or least}


def _counter(file: AgentFile, model: str, defaults: AgentDefaults) -> str:
    """Return the name of the agent's token counter for a model. `tiktoken` stands for the model's vocabulary."""
    written = file.context.token_counter
    return defaults.counter_of(model) if written == DEFAULT_COUNTER else written


def _summary_policy(file: AgentFile, defaults: AgentDefaults) -> SummaryPolicy:
    written = file.context.summary
    return _filled(
        SummaryPolicy,
        written,
        model=written.model or defaults.summary_model,
        base_url=_summary_address(file, defaults),
        api_key_env=_summary_key(file, defaults),
        max_tokens=file.context.max_summary_tokens or written.max_tokens,
        chunk_messages=file.context.summarize_chunk_size,
    )


def _filled(kind: type[Filled], section: Section, **decided: object) -> Filled:
    """Return a value with the fields in `decided`, and those of the same names in `section`."""
    written = {declared.name for declared in fields(kind)} & type(section).model_fields.keys() - decided.keys()
    values: dict[str, Any] = {name: getattr(section, name) for name in written}  # Any: each field has its own type
    return kind(**values | decided)


def _summary_address(file: AgentFile, defaults: AgentDefaults) -> str | None:
    """Return the address of the agent's summary model.

    A summary model that the file names has the address in the file, else that of the agent's own model. A summary model
    from the settings has the address from the settings. None stands for the provider's own address.
    """
    if file.context.summary.base_url:
        return file.context.summary.base_url
    named = file.context.summary.model
    if not named:
        return defaults.summary_base_url
    if file.base_url or file.model:
        return file.base_url
    return defaults.inherited_default_base_url(named)


def _summary_key(file: AgentFile, defaults: AgentDefaults) -> str | None:
    """Return the name of the variable with the key of the summary model, None if no variable is named for it.

    The agent's key is sent only to the agent's address. Without an address it is for the provider of the agent's model,
    and another model may have another provider.
    """
    written = file.context.summary
    if written.base_url:
        return written.api_key_env
    if not written.model:
        return defaults.summary_api_key_env
    return file.api_key_env if file.base_url or written.model == file.model else None


def _check_target(path: Path, section: ContextSection, threshold: float) -> None:
    """Raise AgentInvalid if a written target is not below the threshold.

    A default target is lowered instead: see `_default_target`.
    """
    source = "" if section.usage_threshold else " (the setting CONTEXT_USAGE_THRESHOLD)"
    if section.target is not None and section.target >= threshold:
        raise AgentInvalid(
            f"{path}:\n  context.target: {section.target} must be below usage_threshold, which is {threshold}{source}"
        )
    tokens, window = section.target_tokens, section.window
    if tokens is not None and window is not None and tokens >= threshold * window:
        raise AgentInvalid(
            f"{path}:\n  context.target_tokens: {tokens} must be below {int(threshold * window)}, which is "
            f"usage_threshold {threshold}{source} of the window of {window}"
        )


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

    def hide_folder(self, text: str) -> str:
        """Return a text without the path of the folder, which tells of the machine."""
        for folder in (str(self._folder), self._module_root):
            text = text.replace(f"the folder {folder} ", "the folder ").replace(f"{folder}{os.sep}", "")
        return clean_text(text)

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
