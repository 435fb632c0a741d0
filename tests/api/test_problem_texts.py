"""What a refusal says: sentences for people, without the words of the library that checks."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import open_session, set_stage
from throughline.db.database import Database

INSIDE = ("Input should", "dictionary", "instance of", "SendMessage", "Recursion", "tag", ".dict", "pattern", "canary")
NESTED = '{"a":' * 60 + "1" + "}" * 60
BODIES = (
    "[1]",
    "null",
    "{}",
    '{"content": 7}',
    '{"content": null}',
    '{"content": ""}',
    '{"content": []}',
    '{"content": [7]}',
    '{"content": [{"text": "hi"}]}',
    '{"content": [{"type": "canary", "text": "hi"}]}',
    '{"content": [{"type": ["canary"]}]}',
    '{"content": [{"type": "image", "url": "file:///canary"}]}',
    '{"content": [{"type": "image", "url": "https://x", "detail": "canary"}]}',
    '{"content": "hi", "on_busy": "canary"}',
    '{"content": "hi", "metadata": []}',
    f'{{"content": "hi", "metadata": {NESTED}}}',
)


@pytest.fixture
async def client(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    async with set_stage(database).client() as client:
        yield client


async def test_refusals_are_sentences_for_people(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    session = await open_session(client)

    for body in BODIES:
        with subtests.test(body[:60]):
            response = await client.post(f"{session}/messages", content=body)

            assert response.status_code == 422
            assert [word for word in INSIDE if word in response.text] == []
            assert all(error["detail"].endswith(".") for error in response.json()["errors"])


async def test_query_refusals_name_the_bounds(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for query, words in (("limit=0", "1 or more"), ("limit=201", "200 or less"), ("limit=x", "whole number")):
        with subtests.test(query):
            response = await client.get(f"/v1/sessions?{query}")

            assert words in response.json()["detail"]


@pytest.mark.parametrize(("levels", "refusals"), [(64, 0), (65, 2), (900, 2), (5_000, 2)])
async def test_the_depth_that_is_taken_is_always_the_same(
    client: httpx.AsyncClient, levels: int, refusals: int
) -> None:
    session = await open_session(client)
    body = "[" * levels + '"]]\\"[["' + "]" * levels

    async def from_deep(frames: int) -> httpx.Response:
        if frames:
            return await from_deep(frames - 1)
        return await client.post(f"{session}/messages", content=body)

    answers = [await from_deep(frames) for frames in (0, 300)]

    assert [answer.status_code for answer in answers] == [422, 422]
    assert sum("nested" in answer.json()["detail"] for answer in answers) == refusals


async def test_brackets_in_text_are_no_depth(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    response = await client.post(f"{session}/messages", json={"content": '[{"\\' * 1_000})

    assert response.status_code == 200


async def test_hostile_quotes_take_no_time(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    response = await client.post(f"{session}/messages", content="[" * 10 + "[]" * 60 + '"' + '\\"' * 400_000)

    assert response.status_code == 400
