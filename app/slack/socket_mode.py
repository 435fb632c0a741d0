"""Socket Mode: Slack's events over a WebSocket that we open, for where no public address leads to us."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp

from app.slack.bolt import make_client, silent_logger
from app.slack.config import SlackConfig


@asynccontextmanager
async def socket_mode(app: AsyncApp, config: SlackConfig) -> AsyncGenerator[None]:
    """Take events inside the block; the connection is opened anew whenever Slack or the network ends it."""
    logger = silent_logger()
    handler = AsyncSocketModeHandler(app, config.app_token, logger=logger, web_client=make_client(config, logger))
    await handler.client.connect()  # type: ignore[no-untyped-call]  # the SDK left it without types
    try:
        yield
    finally:
        await handler.client.close()  # type: ignore[no-untyped-call]  # the same
