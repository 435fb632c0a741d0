from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from click.testing import Result

from fakes.api_stage import set_stage
from fakes.command_stage import OWN_SOCKET, CommandStage, FakeWorld, command_stage
from throughline.db.database import Database
from throughline.http.services import ApiConfig

Throughline = Callable[..., Result]


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def throughline(world: FakeWorld) -> Throughline:
    """Runs the command line with these arguments and this standard input."""
    return world.run


@pytest.fixture
def config() -> ApiConfig:
    """How the service is served."""
    return OWN_SOCKET


@pytest.fixture
async def dependencies() -> dict[str, object]:
    """What the service has in place of what is played, by the names of its services."""
    return {}


@pytest.fixture
async def service(
    database: Database,
    database_url: str,
    world: FakeWorld,
    config: ApiConfig,
    dependencies: dict[str, object],
    tmp_path: Path,
) -> AsyncIterator[CommandStage]:
    """The real application, on a database of the test, with scripted turns."""
    api = set_stage(database, config, dependencies=dependencies)
    async with command_stage(api, world, database_url, tmp_path / "s") as stage:
        yield stage
