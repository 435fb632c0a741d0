"""Slack with its double for one test."""

from collections.abc import AsyncGenerator

import pytest

from fakes.slack_commands import Asked, commands_on
from fakes.slack_delivery import DeliveryStage, SlackStage, delivery_stage, slack_stage
from throughline.db.database import Database


@pytest.fixture
async def stage(database: Database, database_url: str) -> AsyncGenerator[SlackStage]:
    async with slack_stage(database, database_url) as stage:
        yield stage


@pytest.fixture
async def outgoing(database: Database, database_url: str) -> AsyncGenerator[DeliveryStage]:
    async with delivery_stage(database, database_url) as stage:
        yield stage


@pytest.fixture
async def ask(outgoing: DeliveryStage) -> AsyncGenerator[Asked]:
    async with commands_on(outgoing) as asked:
        yield asked
