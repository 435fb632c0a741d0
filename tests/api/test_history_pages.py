"""Pages of the history: `next_cursor` is handed in again as `cursor`, in either order."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import open_session, set_stage
from throughline.db.database import Database


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    stage = set_stage(database)
    async with stage.client() as client:
        yield client
    await stage.turns.settle()


async def walk(client: httpx.AsyncClient, path: str, **query: str | int) -> list[int]:
    """Return the positions of all pages, going on by cursor."""
    positions: list[int] = []
    asked = dict(query)
    while True:
        page = (await client.get(path, params=asked)).json()
        positions += [message["position"] for message in page["data"]]
        if page["next_cursor"] is None:
            return positions
        asked["cursor"] = page["next_cursor"]


async def test_a_cursor_continues_in_the_asked_order(client: httpx.AsyncClient) -> None:
    session = await open_session(client)
    for _ in range(3):
        await client.post(f"{session}/messages", json={"content": "hi"})
    path = f"{session}/messages"

    assert await walk(client, path, limit=1) == [1, 2, 3, 4, 5, 6]
    assert await walk(client, path, limit=4, order="desc") == [6, 5, 4, 3, 2, 1]
    assert await walk(client, path, limit=2, after=1, before=6) == [2, 3, 4, 5]
    assert await walk(client, path, limit=2, after=1, before=6, order="desc") == [5, 4, 3, 2]


async def test_a_cursor_that_is_none_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    session = await open_session(client)

    for cursor in ("", "x", "-1", "9" * 30):
        with subtests.test(cursor):
            response = await client.get(f"{session}/messages", params={"cursor": cursor})
            assert response.status_code == 422
            assert response.json()["errors"][0]["field"] == "cursor"
