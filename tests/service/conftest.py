"""The whole service on a database of its own and the strict provider double, each as a real process or server."""

from collections.abc import Generator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fakes.pooler import environment_of
from fakes.provider_double import ProviderDouble
from fakes.run_folder import memory_folder

MODEL = "double-128k-cl100k"


@pytest.fixture
def folder() -> Generator[Path]:
    """A short path: a unix socket lies in it."""
    with TemporaryDirectory(prefix="tl-", dir=memory_folder(), ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def on_double(provider_double: ProviderDouble, database_url: str) -> Mapping[str, str]:
    """Settings that point the service at a migrated database and at the double."""
    return {
        **environment_of(database_url),
        "DEFAULT_LLM": f"openai:{MODEL}",
        "DEFAULT_LLM_BASE_URL": provider_double.url,
        "OPENAI_API_KEY": "test",
    }
