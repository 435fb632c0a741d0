from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from fakes.api_stage import KEYED, LOCAL, ApiStage, set_stage
from throughline.api.front_end import API
from throughline.console.front_end import CONSOLE
from throughline.db.database import Database
from throughline.http.app import create_app
from throughline.http.services import ApiConfig


def console_stage(database: Database, config: ApiConfig) -> ApiStage:
    """Return the application with the console beside the REST interface."""
    stage = set_stage(database, config)
    return replace(stage, app=create_app(stage.services, config, (API, CONSOLE)))


@pytest.fixture
def stage(database: Database) -> ApiStage:
    """Return the application without keys, as `make run` serves it."""
    return console_stage(database, LOCAL)


@pytest.fixture
def keyed(database: Database) -> ApiStage:
    """Return the application with keys."""
    return console_stage(database, KEYED)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client() as client:
        yield client


@pytest.fixture
async def anna(keyed: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client with a key of `anna`."""
    async with keyed.client(key=await keyed.key("anna")) as client:
        yield client


@pytest.fixture
async def bob(keyed: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client with a key of `bob`, who owns nothing."""
    async with keyed.client(key=await keyed.key("bob")) as client:
        yield client
