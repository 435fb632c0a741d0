from collections.abc import AsyncIterator

import pytest

from fakes.api_stage import KEYED, LOCAL, ApiStage
from fakes.mcp_client import WITH_TASKS, McpClient, mcp_stage
from throughline.db.database import Database


@pytest.fixture
def stage(database: Database) -> ApiStage:
    """Return the application without keys, as `make run` serves it."""
    return mcp_stage(database, LOCAL)


@pytest.fixture
def keyed(database: Database) -> ApiStage:
    """Return the application with keys."""
    return mcp_stage(database, KEYED)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[McpClient]:
    """Yield a client of revision 2026-07-28 without tasks."""
    async with stage.client() as http:
        yield McpClient(http)
    await stage.turns.settle()


@pytest.fixture
async def tasks(stage: ApiStage) -> AsyncIterator[McpClient]:
    """Yield a client of revision 2026-07-28 that follows tasks."""
    async with stage.client() as http:
        yield McpClient(http, capabilities=WITH_TASKS)
    await stage.turns.settle()
