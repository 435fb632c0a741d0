from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import ApiStage, set_stage
from throughline.db.database import Database


@pytest.fixture
def stage(database: Database) -> ApiStage:
    return set_stage(database)


@pytest.fixture
async def client(stage: ApiStage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.client() as client:
        yield client
