import pytest

from fakes.stage import Stage, open_stage
from throughline.db.database import Database


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database)
