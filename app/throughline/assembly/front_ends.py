"""The front ends of the service, a line each: to leave one out, delete its package and its line."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from throughline.domain.errors import NotFound, SettingInvalid
from throughline.ports.front_end import FrontEndParts, FrontEndSection

if TYPE_CHECKING:
    import click

    from throughline.agents.registry import AgentRegistry
    from throughline.db.front_end_storage import FrontEndStorage
    from throughline.http.app import Endpoint, FrontEnd, FrontEndProcess, Program

FRONT_ENDS = (
    "throughline.api",
    "throughline.openai",
    "throughline.ag_ui",
    "throughline.ai_sdk",
    "throughline.console",
    "throughline.langgraph_api",
    "throughline.mcp_server",
    "throughline.slack",
)
"""Packages with a value `PARTS`."""


def routes(settings: object) -> tuple["FrontEnd", ...]:
    """Return the front ends that have routes, without those that the settings turn off."""
    return tuple(part for _, part in _load("routes") if part.is_on(settings))


@asynccontextmanager
async def open_endpoints(process: "FrontEndProcess") -> AsyncGenerator[tuple["Endpoint", ...]]:
    """Run the front ends that have an endpoint beside the routes while the context is open; yield what they serve.

    Raises SettingInvalid for a wrong setting of a front end.
    """
    check_needed_agents(needed_agents(process.settings), process.agents)
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(opening(process)) for _, opening in _load("endpoint")]
        yield tuple(endpoint for endpoint in opened if endpoint is not None)


def program(name: str) -> "Program":
    """Return the program of the front end whose package has this name."""
    found: Program = next(part for package, part in _load("program") if package == f"throughline.{name}")
    return found


def commands() -> tuple["click.Command", ...]:
    """Return the commands of front ends."""
    return tuple(part for _, part in _load("command"))


def storages() -> tuple["FrontEndStorage", ...]:
    """Return what front ends store."""
    return tuple(part for _, part in _load("storage"))


def import_tables() -> None:
    """Import the tables of the front ends, so that `db.tables.METADATA` has them, too."""
    storages()


@cache
def settings_sections() -> tuple[type[FrontEndSection], ...]:
    """Return the settings of front ends."""
    return tuple(part for _, part in _load("settings"))


def needed_agents(settings: object) -> Mapping[str, str]:
    """Return the agents without which a front end cannot be served, by the name of the setting."""
    needed: dict[str, str] = {}
    for section in settings_sections():
        if isinstance(settings, section):
            needed |= section.needed_agents(settings)
    return needed


def check_needed_agents(needed: Mapping[str, str], agents: "AgentRegistry") -> None:
    """Raise SettingInvalid if a needed agent does not exist; `needed` is as `needed_agents` returns it."""
    for name, agent in needed.items():
        try:
            agents.get(agent)
        except NotFound as error:
            raise SettingInvalid(f"{name}: {error.detail}") from None


def _load(part: str) -> Iterator[tuple[str, Any]]:  # a part of any type
    """Yield the package and this part of each front end that has it."""
    for package in FRONT_ENDS:
        parts: FrontEndParts = resolve_name(f"{package}:PARTS")
        if name := getattr(parts, part):
            yield package, resolve_name(f"{package}.{name}")
