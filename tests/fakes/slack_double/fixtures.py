"""The double as a fixture; a failure that was scripted and not met fails the test."""

from collections.abc import AsyncGenerator

import pytest

from fakes.slack_double.server import SlackDouble, serve_slack


@pytest.fixture
async def slack() -> AsyncGenerator[SlackDouble]:
    """A running double."""
    async with serve_slack() as double:
        yield double
        assert double.rules.complaints() == []
