"""Agent files that change while a program runs are read again, checked as at start, and put in use together."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace

import structlog

from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentDefaults, AgentRegistry, FolderWatch
from throughline.assembly.front_ends import check_needed_agents, needed_agents
from throughline.assembly.models import agent_defaults, load_configured_agents
from throughline.domain.errors import AgentInvalid, SettingInvalid, TemporaryError
from throughline.domain.service_status import AgentFileError, ProcessKind
from throughline.execution.error_boundary import ErrorBoundary, running_concurrently
from throughline.llm.counters import warm_counter
from throughline.settings import Settings
from throughline.turn.prompting.agent_windows import log_windows
from throughline.turn.prompting.check_agents import check_agents, check_names
from throughline.turn.state import TurnDependencies

POLL_SECONDS = 1.0
KINDS_WITHOUT_FRONT_ENDS = frozenset({ProcessKind.WORKER, ProcessKind.COMMAND})
"""Kinds of processes that start without the agents of front ends."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class AgentRereading:
    """Re-reading of the agents of one process.

    - `load` reads all agent files.
    - `needed` names agents that must exist, by the settings that name them.
    - `is_due`: changed files were not checked yet, because the database was unavailable.
    """

    watch: FolderWatch
    load: Callable[[], AgentRegistry]
    defaults: AgentDefaults
    dependencies: TurnDependencies
    needed: Mapping[str, str] = field(default_factory=dict)
    is_due: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Poll the folder until cancelled; failures are only logged."""
        while True:
            await self.dependencies.clock.sleep(POLL_SECONDS)
            with ErrorBoundary(log.error, task="agent files"):
                await self.poll()

    async def poll(self) -> None:
        """Read the agents again if their files have changed. Invalid files leave all agents as they are."""
        changes = await asyncio.to_thread(self.watch.poll)
        if changes.modules:
            log.warning(
                "tool modules changed", files=changes.modules, hint="restart the service, which has imported them"
            )
        if not changes.has_agents and not self.is_due:
            return
        was_due, self.is_due = self.is_due, False
        try:
            await self._read_again()
        except (AgentInvalid, SettingInvalid) as error:
            self.dependencies.agents.refuse(self._errors_by_file(error), self.dependencies.clock.now())
            log.error("agent files refused", error=one_line(error.detail), hint="the agents stay as they were")
        except TemporaryError as error:
            self.is_due = True
            if not was_due:
                log.info("agent files not checked", error=error.code, hint="they are checked once the database answers")

    async def _read_again(self) -> None:
        """Put the agents of the files in use. Raises AgentInvalid or SettingInvalid; nothing has changed then."""
        agents, now = self.dependencies.agents, self.dependencies.clock.now()
        was_refused = agents.describe_files().refused is not None
        found = await asyncio.to_thread(self.load)
        before = {agent.name: agent for agent in agents.all()}
        changed = [agent for agent in found.all() if before.get(agent.name) != agent]
        check_needed_agents(self.needed, found)
        await asyncio.to_thread(self._check_names, changed)
        ready = await check_agents(replace(self.dependencies, agents=found), changed)
        for agent in ready:
            await warm_counter(agent.counter)
        removed = sorted(before.keys() - {agent.name for agent in found.all()})
        agents.replace_all(found.all(), found.files, now)
        if ready or removed or was_refused:
            names = [agent.name for agent in changed]
            log.info("agent files read again", changed=names, removed=removed)
        log_windows(ready)
        await self.dependencies.tool_servers.keep_only([
            server for agent in found.all() for server in agent.mcp_servers
        ])

    def _errors_by_file(self, error: AgentInvalid | SettingInvalid) -> list[AgentFileError]:
        """Return the errors as operators read them over REST: without the folder's path."""
        by_file = error.by_file if isinstance(error, AgentInvalid) else {}
        errors = [AgentFileError(file, self.watch.hide_folder(one_line(detail))) for file, detail in by_file.items()]
        return errors or [AgentFileError(None, self.watch.hide_folder(one_line(error.detail)))]

    def _check_names(self, changed: Sequence[AgentDefinition]) -> None:
        """Check the names in changed agents. It runs in a thread, because it may import packages and plugins.

        Hooks and counters are imported, too. Their errors are found again and reported by `check_agents`.
        """
        dependencies = self.dependencies
        check_names(changed, self.defaults, dependencies.models, dependencies.tools)
        for agent in changed:
            for variant in agent.variants():
                with suppress(SettingInvalid):
                    dependencies.make_counter(variant.context.token_counter)
            with suppress(SettingInvalid):
                dependencies.hooks.get(agent.context.pre_compact or "")


def one_line(detail: str) -> str:
    """Return an error's text, which has a line for each file and an indented one for each field, in one line."""
    text = ""
    for line in detail.splitlines():
        text += ("" if not text else " " if text.endswith(":") else "; ") + line.strip()
    return text


def watch_agents(settings: Settings, kind: ProcessKind) -> FolderWatch | None:
    """Return the watch on the operator's folder; None if there is none, or it is not read again.

    Call it before the agents are loaded, so that no later change is missed.
    """
    if settings.agents_dir is None or not settings.agents_reload or kind is ProcessKind.COMMAND:
        return None
    return FolderWatch(settings.agents_dir)


def rereading_agents(
    settings: Settings, kind: ProcessKind, watch: FolderWatch | None, dependencies: TurnDependencies
) -> AbstractAsyncContextManager[object]:
    """Read changed agent files again while the context is open, unless `watch` is None."""
    if watch is None:
        return nullcontext()
    rereading = AgentRereading(
        watch,
        lambda: load_configured_agents(settings),
        agent_defaults(settings),
        dependencies,
        needed={} if kind in KINDS_WITHOUT_FRONT_ENDS else needed_agents(settings),
    )
    return running_concurrently(rereading.run, "agent files")
