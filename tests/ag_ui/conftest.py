from collections.abc import AsyncIterator

import pytest

from fakes.openai_stage import OpenAIStage, open_openai_stage
from throughline.ag_ui.front_end import AG_UI
from throughline.db.database import Database


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[OpenAIStage]:
    async with open_openai_stage(database, front_ends=(AG_UI,)) as stage:
        yield stage
