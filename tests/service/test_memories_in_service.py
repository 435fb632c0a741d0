"""Memories in the real service with an embedding model, over restarts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from fakes.provider_double import ProviderDouble
from fakes.service_process import ServiceProcess, run_service
from fakes.waiting import HANG_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pgvector")]


@pytest.fixture
def with_embeddings(on_double: Mapping[str, str], provider_double: ProviderDouble) -> Mapping[str, str]:
    return {**on_double, "EMBEDDING_MODEL": "openai:small", "EMBEDDING_BASE_URL": provider_double.url}


async def search(service: ServiceProcess, query: str) -> tuple[str, list[str]]:
    answer = await service.client.post("/v1/memories/search", json={"query": query})
    found = answer.raise_for_status().json()
    return found["by"], [memory["text"] for memory in found["data"]]


async def keep(service: ServiceProcess, *texts: str) -> None:
    for text in texts:
        answer = await service.client.post("/v1/memories", json={"text": text})
        assert answer.status_code == httpx.codes.CREATED


async def until_found(service: ServiceProcess, query: str, by: str) -> list[str]:
    async with asyncio.timeout(HANG_SECONDS):
        while (found := await search(service, query))[0] != by:
            await asyncio.sleep(0.1)
    return found[1]


async def test_memories_from_before_a_model_and_from_another_are_found_by_meaning(
    folder: Path, on_double: Mapping[str, str], with_embeddings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    async with run_service(folder, on_double) as service:
        await keep(service, "The cat is called Miso.")
        without = await search(service, "feline")
        await service.terminate()
    provider_double.embeddings.dimensions = 8
    async with run_service(folder, with_embeddings) as service:
        first = await until_found(service, "feline", "vector")
        await keep(service, "Rex is a dog.")
        await service.terminate()
    provider_double.embeddings.dimensions = 16
    async with run_service(folder, with_embeddings) as service:
        both = await until_found(service, "feline", "vector")
        provider_double.embeddings.failure = "down"
        await keep(service, "Anna lives in Oslo.")
        meanwhile = await search(service, "oslo")
        await service.terminate()
    log = service.log.read_text()

    assert without == ("text", [])
    assert first == ["The cat is called Miso."]
    assert both[0] == "The cat is called Miso."
    assert meanwhile == ("text", ["Anna lives in Oslo."])
    assert "embedding request failed" in log
    assert "Oslo" not in log


async def test_messages_from_before_a_model_are_found_by_meaning(
    folder: Path, on_double: Mapping[str, str], with_embeddings: Mapping[str, str], provider_double: ProviderDouble
) -> None:
    provider_double.embeddings.dimensions = 1_024
    async with run_service(folder, on_double) as service:
        session = (await service.client.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
        await service.client.post(f"/v1/sessions/{session}/messages", json={"content": "The cat is called Miso."})
        await service.terminate()
    async with run_service(folder, with_embeddings) as service:
        async with asyncio.timeout(HANG_SECONDS):
            while (found := await search_history(service, "feline"))[0] != "vector":
                await asyncio.sleep(0.1)
        await service.terminate()
    async with run_service(folder, {**with_embeddings, "EMBEDDING_HISTORY": "false"}) as service:
        provider_double.embeddings.requests.clear()
        off = await search_history(service, "feline")
        await service.terminate()

    assert "The cat is called Miso." in found[1]
    assert off == ("text", [])
    assert ("feline",) not in provider_double.embeddings.requests


async def search_history(service: ServiceProcess, query: str) -> tuple[str, list[str]]:
    answer = await service.client.get("/v1/search", params={"q": query})
    found = answer.raise_for_status().json()
    return found["by"], [hit["message"]["content"] for hit in found["data"]]
