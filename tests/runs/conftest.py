"""Real processes on one database: `serve --no-worker` takes messages, `worker` answers them through the double."""

from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fakes.pooler import environment_of
from fakes.provider_double import ProviderDouble
from fakes.run_folder import memory_folder
from fakes.service_process import ServiceProcess, run_service


@pytest.fixture
def folder() -> Generator[Path]:
    with TemporaryDirectory(prefix="tl-", dir=memory_folder(), ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def settings(provider_double: ProviderDouble, database_url: str) -> Mapping[str, str]:
    """Settings that every process of a test shares."""
    return {
        **environment_of(database_url),
        "DEFAULT_LLM": "openai:double-128k-cl100k",
        "DEFAULT_LLM_BASE_URL": provider_double.url,
        "OPENAI_API_KEY": "test",
        "LEASE_SECONDS": "4",
    }


@pytest.fixture
async def server(folder: Path, settings: Mapping[str, str]) -> AsyncGenerator[ServiceProcess]:
    """A server that answers nothing by itself."""
    async with run_service(folder, settings, "--no-worker") as started:
        yield started
