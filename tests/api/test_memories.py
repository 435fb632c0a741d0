"""Memories over REST: kept, listed page by page, changed, deleted, found by their words, and nobody else's."""

import random
from collections.abc import AsyncIterator

import httpx
import pytest

from fakes.api_stage import KEYED, open_session, set_stage
from fakes.memory_stage import MODEL, MemoryStage, open_memory_stage
from fakes.pooler import urls_of
from fakes.provider_double import ProviderDouble
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.basic_types import UserId


async def keep(client: httpx.AsyncClient, *texts: str) -> list[str]:
    answers = [await client.post("/v1/memories", json={"text": text}) for text in texts]
    assert [answer.status_code for answer in answers] == [201] * len(texts)
    return [answer.json()["id"] for answer in answers]


async def test_a_memory_is_kept_changed_and_deleted(database: Database) -> None:
    async with set_stage(database).client() as client:
        made = await client.post("/v1/memories", json={"text": "Likes tea.", "metadata": {"from": "chat"}})
        path = made.headers["Location"]
        changed = await client.patch(path, json={"text": "Likes coffee."})
        again = (await client.get(path)).json()
        deleted = await client.delete(path)
        gone = await client.get(path)

    assert made.status_code == 201
    assert (changed.json()["text"], changed.json()["metadata"]) == ("Likes coffee.", {"from": "chat"})
    assert again == changed.json()
    assert (deleted.status_code, gone.status_code) == (204, 404)


async def test_memories_are_listed_page_by_page_newest_first(database: Database) -> None:
    async with set_stage(database).client() as client:
        ids = await keep(client, *(f"number {number}" for number in range(7)))
        first = (await client.get("/v1/memories?limit=4")).json()
        second = (await client.get("/v1/memories", params={"limit": 4, "cursor": first["next_cursor"]})).json()

    assert [memory["id"] for memory in first["data"] + second["data"]] == ids[::-1]
    assert second["next_cursor"] is None


async def test_memories_are_found_by_their_words_and_forgotten_words_find_nothing(database: Database) -> None:
    async with set_stage(database).client() as client:
        ids = await keep(client, "The cat is called Miso.", "The dog is called Rex.", "Lives in Oslo.")

        async def found(query: str) -> list[str]:
            answer = await client.post("/v1/memories/search", json={"query": query})
            return [memory["id"] for memory in answer.json()["data"]]

        assert (await found("what are the cats called"))[0] == ids[0]
        assert await found("oslo") == [ids[2]]
        await client.patch(f"/v1/memories/{ids[2]}", json={"text": "Lives in Rome."})
        assert await found("oslo") == []
        assert await found("the") == []


async def test_a_changed_language_finds_memories_that_were_kept_before(database: Database, database_url: str) -> None:
    async with set_stage(database).client() as client:
        await keep(client, "Die Häuser am Hafen")
    owner: UserId = await database.users.get_or_create("local")
    german = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=1, search_language="german"))

    found = await german.memories.search(owner, "Haus", 5)
    await german.close()

    assert [memory.text for memory in found] == ["Die Häuser am Hafen"]


@pytest.mark.parametrize(
    "body", [{}, {"text": ""}, {"text": " "}, {"text": "x" * 10_001}, {"text": 1}, {"text": "a", "x": 1}]
)
async def test_what_is_no_memory_is_refused(database: Database, body: dict[str, object]) -> None:
    async with set_stage(database).client() as client:
        assert (await client.post("/v1/memories", json=body)).status_code == 422


async def test_memories_are_not_put_into_a_session(database: Database) -> None:
    async with set_stage(database).client() as client:
        await keep(client, "The cat is called Miso.")
        session = await open_session(client)
        found = (await client.get(f"{session}/search?q=miso")).json()

    assert found["data"] == []


async def test_a_search_answers_with_numbers_and_says_what_it_went_by(database: Database) -> None:
    async with set_stage(database).client() as client:
        await keep(client, "The cat is called Miso.")
        answer = (await client.post("/v1/memories/search", json={"query": "cat"})).json()

    assert answer["by"] == "text"
    assert isinstance(answer["data"][0]["score"], float)


@pytest.mark.slow
async def test_random_requests_of_many_users_show_no_foreign_memory(database: Database) -> None:
    stage, chance = set_stage(database, KEYED), random.Random(3)
    owners = [await database.users.get_or_create(f"user-{number}") for number in range(50)]
    for number, owner in enumerate(owners):
        for text in ("harbour", "comet", "ledger"):
            await stage.database.memories.create(owner, f"{text} of user-{number:02d}", {})

    for _ in range(500):
        number = chance.randrange(50)
        query = " ".join(chance.choices(["harbour", "comet", "ledger", f"user-{chance.randrange(50):02d}"], k=2))
        found = await stage.database.memories.search(owners[number], query, 50)
        page = await stage.database.memories.list(owners[number], 200, None)
        assert {memory.user_id for memory in (*found, *page.items)} == {owners[number]}


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


@pytest.mark.usefixtures("pgvector")
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


@pytest.mark.usefixtures("pgvector")
async def test_nothing_fails_while_the_provider_is_down_and_answers_say_what_they_went_by(
    database: Database, memories: MemoryStage
) -> None:
    memories.provider.failure = "down"
    async with set_stage(database, memories=memories.keeper).client() as client:
        made = await client.post("/v1/memories", json={"text": "The cat is called Miso."})
        found = await search(client, "cat")

    assert made.status_code == 201
    assert found == ("text", ["The cat is called Miso."])


@pytest.mark.usefixtures("pgvector")
async def test_text_with_nul_is_kept_searched_and_embedded_without_it(
    database: Database, memories: MemoryStage
) -> None:
    async with set_stage(database, memories=memories.keeper).client() as client:
        made = await client.post("/v1/memories", content=b'{"text": "cat\\u0000 \\ud800 Miso"}')
        found = await search(client, "feline\x00")

    assert made.status_code == 201, made.text
    assert found == ("vector", ["cat\ufffd \ufffd Miso"])
    assert await memories.vectors() == [("cat\ufffd \ufffd Miso", MODEL, 64)]


@pytest.mark.usefixtures("pgvector")
async def test_two_users_find_their_own(database: Database, memories: MemoryStage) -> None:
    stage = set_stage(database, KEYED, memories.keeper)
    for user in ("anna", "ben"):
        async with stage.client(key=await stage.key(user)) as client:
            await client.post("/v1/memories", json={"text": f"The cat of {user}"})

    async with stage.client(key=await stage.key("ben")) as client:
        assert await search(client, "The feline of anna") == ("vector", ["The cat of ben"])
