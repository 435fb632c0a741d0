from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from fakes.api_stage import ApiStage
from fakes.front_end_stages import keyed, stage
from throughline.console.front_end import CONSOLE
from throughline.http.app import FrontEnd

__all__ = ["keyed", "stage"]


@pytest.fixture
def front_ends() -> Sequence[FrontEnd]:
    return (CONSOLE,)


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
