"""Fixtures of all tests: the doubles of providers, Slack and the database's servers, and no certificates."""

import os
from collections.abc import AsyncGenerator, Generator, Iterator

import pytest

from fakes.anthropic_double.double import AnthropicDouble
from fakes.anthropic_double.serving import serve_anthropic
from fakes.database_wire import DatabaseWire, database_wire
from fakes.pretended_standby import PretendedStandby, pretended_standby
from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.serving import serve_double
from fakes.replicas import ReplicaProcess, opened
from fakes.slack_double.server import SlackDouble, serve_slack
from fakes.waiting import HANG_SECONDS


@pytest.fixture(scope="session", autouse=True)
def _no_certificates(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Have OpenSSL find no certificates: every HTTP client reads all of them when it is made, for 10 to 20 ms."""
    before = os.environ.copy()
    os.environ["SSL_CERT_DIR"] = str(tmp_path_factory.mktemp("certificates"))
    os.environ.pop("SSL_CERT_FILE", None)
    yield
    for name in ("SSL_CERT_DIR", "SSL_CERT_FILE"):
        os.environ.pop(name, None)
        if name in before:
            os.environ[name] = before[name]


@pytest.fixture(scope="session")
def running_provider_double() -> Iterator[ProviderDouble]:
    with serve_double(ProviderDouble()) as double:
        yield double


LIMITS_OF_SEARCHES = (
    "throughline.turn.recall_history.SEARCH_SECONDS",
    "throughline.turn.recall_memories.SEARCH_SECONDS",
    "throughline.turn.recall.history_search.MODEL_SECONDS",
    "throughline.turn.recall.history_search.QUICK_SECONDS",
    "throughline.db.search.repository.CATCH_UP_SECONDS",
)
"""Limits after which a search returns less, or nothing: a slow machine would change what turns are given."""


@pytest.fixture(scope="session", autouse=True)
def _patient_searches() -> Generator[None]:
    """Let no search end early. Tests of these limits set their own."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in LIMITS_OF_SEARCHES:
            patch.setattr(limit, HANG_SECONDS)
        yield


@pytest.fixture
def provider_double(running_provider_double: ProviderDouble) -> Iterator[ProviderDouble]:
    running_provider_double.reset()
    yield running_provider_double
    running_provider_double.assert_script_used()


@pytest.fixture(scope="session")
def running_anthropic_double() -> Iterator[AnthropicDouble]:
    with serve_anthropic(AnthropicDouble()) as double:
        yield double


@pytest.fixture
def anthropic_double(running_anthropic_double: AnthropicDouble) -> Iterator[AnthropicDouble]:
    running_anthropic_double.reset()
    yield running_anthropic_double
    running_anthropic_double.assert_script_used()


@pytest.fixture
async def slack() -> AsyncGenerator[SlackDouble]:
    """A running double."""
    async with serve_slack() as double:
        yield double
        assert double.rules.complaints() == []


@pytest.fixture
async def wire(database_url: str) -> AsyncGenerator[DatabaseWire]:
    """What stands between the service and a database that only this test uses."""
    async with database_wire(database_url) as between:
        yield between


@pytest.fixture
async def standby(database_url: str) -> AsyncGenerator[PretendedStandby]:
    """The test's database as a standby, for connections made from now on."""
    async with pretended_standby(database_url) as pretended:
        yield pretended


@pytest.fixture
async def process(database_url: str, standby: PretendedStandby) -> AsyncGenerator[ReplicaProcess]:
    """A process of the test's database whose replica is that standby."""
    async with opened(database_url, standby.url) as found:
        yield found
