from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import root
from app.db.database import Database
from fakes.api_stage import set_stage
from fakes.command_stage import OWN_SOCKET, CommandStage, command_stage
from fakes.fake_parts import FakeWorld
from fakes.fake_service import FakeService

Throughline = Callable[..., Result]


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld(FakeService())


@pytest.fixture
def throughline(world: FakeWorld) -> Throughline:
    """Run the command line with these arguments and this standard input."""

    def run(*arguments: str, typed: str = "") -> Result:
        return CliRunner().invoke(root.throughline, arguments, input=typed, prog_name="throughline", obj=world.parts())

    return run


@pytest.fixture
async def service(database: Database, database_url: str, tmp_path: Path) -> AsyncIterator[CommandStage]:
    """The real application, on a database of the test, with scripted turns."""
    async with command_stage(set_stage(database, OWN_SOCKET), database_url, tmp_path / "s") as stage:
        yield stage
