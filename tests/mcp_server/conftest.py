from collections.abc import AsyncIterator, Sequence

import pytest

from fakes.api_stage import ApiStage
from fakes.front_end_stages import keyed, stage
from fakes.mcp_client import WITH_TASKS, McpClient
from throughline.http.app import FrontEnd
from throughline.mcp_server.front_end import MCP

__all__ = ["keyed", "stage"]


@pytest.fixture
def front_ends() -> Sequence[FrontEnd]:
    return (MCP,)


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
