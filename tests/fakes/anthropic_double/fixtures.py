"""Pytest fixtures: one running double for all tests of a process, fresh and checked for each test."""

from collections.abc import Iterator

import pytest

from fakes.anthropic_double.double import AnthropicDouble
from fakes.anthropic_double.serving import serve_anthropic


@pytest.fixture(scope="session")
def running_anthropic_double() -> Iterator[AnthropicDouble]:
    with serve_anthropic(AnthropicDouble()) as double:
        yield double


@pytest.fixture
def anthropic_double(running_anthropic_double: AnthropicDouble) -> Iterator[AnthropicDouble]:
    running_anthropic_double.reset()
    yield running_anthropic_double
    running_anthropic_double.assert_script_used()
