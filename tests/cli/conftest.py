from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from app.cli import root
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
