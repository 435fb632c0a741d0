"""The served application with real turns of a scripted model behind it, as `useChat` talks to it."""

from collections.abc import AsyncIterator, Sequence

import pytest

from fakes.ai_sdk_stage import ChatStage, open_chat_stage
from fakes.front_end_stages import keyed
from throughline.ai_sdk.front_end import AI_SDK
from throughline.db.database import Database
from throughline.http.app import FrontEnd

__all__ = ["keyed"]


@pytest.fixture
def front_ends() -> Sequence[FrontEnd]:
    return (AI_SDK,)


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[ChatStage]:
    async with open_chat_stage(database) as stage:
        yield stage
