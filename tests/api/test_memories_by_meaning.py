"""Memories over REST with an embedding model behind them."""

from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import KEYED, set_stage
from fakes.memory_stage import MODEL, MemoryStage, open_memory_stage
from fakes.provider_double import ProviderDouble
from throughline.db.database import Database

pytestmark = pytest.mark.usefixtures("pgvector")


@pytest.fixture
async def memories(
    database: Database, database_url: str, provider_double: ProviderDouble
) -> AsyncIterator[MemoryStage]:
    async with open_memory_stage(database, database_url, provider_double) as opened:
        yield opened


async def search(client: httpx.AsyncClient, query: str) -> tuple[str, list[str]]:
    answer = await client.post("/v1/memories/search", json={"query": query})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert all(isinstance(memory["score"], float) for memory in found["data"])
    return found["by"], [memory["text"] for memory in found["data"]]


async def test_a_memory_is_kept_changed_and_found_by_its_meaning(database: Database, memories: MemoryStage) -> None:
    async with set_stage(database, memories=memories.keeper).client() as client:
        made = await client.post("/v1/memories", json={"text": "The cat is called Miso."})
        by_meaning = await search(client, "feline")
        changed = await client.patch(made.headers["Location"], json={"text": "Drinks tea."})
        by_new_meaning = await search(client, "beverage")

    assert (made.status_code, changed.status_code) == (201, 200)
    assert set(made.json()) == {"id", "text", "metadata", "created_at", "updated_at", "score"}
    assert by_meaning == ("vector", ["The cat is called Miso."])
    assert by_new_meaning == ("vector", ["Drinks tea."])


async def test_nothing_fails_while_the_provider_is_down_and_answers_say_what_they_went_by(
    database: Database, memories: MemoryStage
) -> None:
    memories.provider.failure = "down"
    async with set_stage(database, memories=memories.keeper).client() as client:
        made = await client.post("/v1/memories", json={"text": "The cat is called Miso."})
        found = await search(client, "cat")

    assert made.status_code == 201
    assert found == ("text", ["The cat is called Miso."])


async def test_text_with_nul_is_kept_searched_and_embedded_without_it(
    database: Database, memories: MemoryStage
) -> None:
    async with set_stage(database, memories=memories.keeper).client() as client:
        made = await client.post("/v1/memories", content=b'{"text": "cat\\u0000 \\ud800 Miso"}')
        found = await search(client, "feline\x00")

    assert made.status_code == 201, made.text
    assert found == ("vector", ["cat\ufffd \ufffd Miso"])
    assert await memories.vectors() == [("cat\ufffd \ufffd Miso", MODEL, 64)]


async def test_two_users_find_their_own(database: Database, memories: MemoryStage) -> None:
    stage = set_stage(database, KEYED, memories.keeper)
    for user in ("anna", "ben"):
        async with stage.client(key=await stage.key(user)) as client:
            await client.post("/v1/memories", json={"text": f"The cat of {user}"})

    async with stage.client(key=await stage.key("ben")) as client:
        assert await search(client, "The feline of anna") == ("vector", ["The cat of ben"])
