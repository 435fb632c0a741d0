"""The service asks the servers of its models for their windows when it starts, and starts without an answer."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.model_servers import OLLAMA, VLLM, RouteAnswer, serve_model_server
from fakes.pooler import environment_of
from fakes.service_process import ServiceProcess, run_service

pytestmark = pytest.mark.slow


def settings(database_url: str, address: str, model: str) -> Mapping[str, str]:
    return {
        **environment_of(database_url),
        "DEFAULT_LLM": f"openai:{model}",
        "DEFAULT_LLM_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "of-another-server",
    }


async def windows(service: ServiceProcess) -> set[tuple[int, str]]:
    agents = (await service.client.get("/v1/agents")).raise_for_status().json()["data"]
    return {(agent["window"], agent["window_from"]) for agent in agents}


async def test_the_window_of_the_models_server_is_used_and_told(folder: Path, database_url: str) -> None:
    async with serve_model_server(VLLM) as server:
        async with run_service(folder, settings(database_url, server.url, "Qwen/Qwen3-32B")) as service:
            told = await windows(service)
        log = service.log.read_text()

    assert told == {(40_960, "server")}
    assert server.asked == ["/v1/models"]
    assert log.count("context window found") == 1
    assert "context window unknown" not in log
    assert "of-another-server" not in "".join(server.heads)


@pytest.mark.parametrize("answer", [RouteAnswer(hangs=True), RouteAnswer(status=500)], ids=["hangs", "fails"])
async def test_a_server_without_an_answer_stops_no_start_and_is_warned_of(
    answer: RouteAnswer, folder: Path, database_url: str
) -> None:
    async with (
        serve_model_server({"/v1/models": answer}) as server,
        run_service(folder, settings(database_url, server.url, "house-model")) as service,
    ):
        told = await windows(service)

    log = service.log.read_text()
    assert told == {(8192, "unknown")}
    assert log.count("context window unknown") == 1
    assert "set context.window in the agent file" in log


async def test_every_shipped_agent_fits_the_lowest_window_of_ollama(folder: Path, database_url: str) -> None:
    async with (
        serve_model_server(OLLAMA) as server,
        run_service(folder, settings(database_url, server.url, "qwen2.5:7b")) as service,
    ):
        told = await windows(service)

    assert told == {(4096, "unknown")}
    assert "Ollama has not loaded the model" in service.log.read_text()
