from collections.abc import AsyncIterator

import pytest

from fakes.langgraph_stage import LangGraphStage, open_langgraph_stage
from throughline.db.database import Database


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[LangGraphStage]:
    async with open_langgraph_stage(database) as stage:
        yield stage
