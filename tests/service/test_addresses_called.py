"""Users' words and keys go to the configured addresses only, whatever stands in the environment."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fakes.provider_double import ProviderDouble
from fakes.service_process import ServiceProcess, run_service
from fakes.slack_double import BOT_TOKEN, SIGNING_SECRET, Sender, SlackDouble, say
from fakes.slack_double.payloads import message
from fakes.waiting import HANG_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pgvector")]


class ElsewhereListener:
    """A server that stands for all other addresses and keeps what is sent to it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._receive, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.read(500))
        writer.close()


@pytest.fixture
async def elsewhere() -> AsyncGenerator[ElsewhereListener]:
    listener = ElsewhereListener()
    async with listener.listening():
        yield listener


@pytest.fixture
def environment(
    on_double: Mapping[str, str], provider_double: ProviderDouble, slack: SlackDouble, elsewhere: ElsewhereListener
) -> Mapping[str, str]:
    """Everything the service calls is a double at this address; all else goes through a proxy, which is `elsewhere`."""
    url = elsewhere.url
    tracing = {f"{maker}_TRACING{version}": "true" for maker in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2")}
    endpoints = {"LANGSMITH_ENDPOINT": url, "LANGCHAIN_ENDPOINT": url, "OTEL_EXPORTER_OTLP_ENDPOINT": url}
    return {
        **on_double,
        "EMBEDDING_MODEL": "openai:small",
        "EMBEDDING_BASE_URL": provider_double.url,
        "SLACK_BOT_TOKEN": BOT_TOKEN,
        "SLACK_SIGNING_SECRET": SIGNING_SECRET,
        "SLACK_API_URL": slack.url,
        **tracing,
        **endpoints,
        "LANGSMITH_API_KEY": "lsv2-of-another-program",
        "LANGSMITH_OTEL_ENABLED": "true",
        "ALL_PROXY": url,  # Slack's SDK passes over NO_PROXY, and knows this one not
        "NO_PROXY": "127.0.0.1,localhost",
    }


async def use_everything(service: ServiceProcess, slack: SlackDouble) -> None:
    """Have turns, a summary, an embedding and an answer in Slack."""
    session = await service.new_session()
    for number in range(6):
        (await service.send(session, f"stone {number} " + "and another word " * 40)).raise_for_status()
    summary = (await service.client.post(f"/v1/sessions/{session}/summarize")).raise_for_status().json()
    assert summary["outcome"] == "adopted", summary
    (await service.client.post("/v1/memories", json={"text": "The cat is called Miso."})).raise_for_status()
    async with asyncio.timeout(HANG_SECONDS):
        while (await _search_memories(service)) != "vector":
            await asyncio.sleep(0.1)
        await Sender(service.client).deliver(message(say("What is 6 * 7?")))
        while not [posted for posted in slack.workspace.posted if not posted.is_streaming]:
            await asyncio.sleep(0.05)


async def _search_memories(service: ServiceProcess) -> str:
    answer = await service.client.post("/v1/memories/search", json={"query": "feline"})
    return str(answer.raise_for_status().json()["by"])


async def test_nothing_is_sent_to_an_address_that_no_setting_names(
    folder: Path, environment: Mapping[str, str], slack: SlackDouble, elsewhere: ElsewhereListener
) -> None:
    async with run_service(folder, environment) as service:
        await use_everything(service, slack)
        await service.terminate()

    assert elsewhere.received == []
    assert "tracing variables ignored" in service.log.read_text()
