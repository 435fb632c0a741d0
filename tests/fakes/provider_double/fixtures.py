"""Pytest fixtures: one running double for all tests of a process, fresh and checked for each test."""

from collections.abc import Iterator

import pytest

from fakes.provider_double.double import ProviderDouble
from fakes.provider_double.serving import serve_double


@pytest.fixture(scope="session")
def running_provider_double() -> Iterator[ProviderDouble]:
    with serve_double(ProviderDouble()) as double:
        yield double


@pytest.fixture
def provider_double(running_provider_double: ProviderDouble) -> Iterator[ProviderDouble]:
    running_provider_double.reset()
    yield running_provider_double
    running_provider_double.assert_script_used()
