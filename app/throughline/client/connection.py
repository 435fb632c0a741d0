"""Connection of a client: the database at the given address, or else at DATABASE_URL, is opened and checked."""

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TextIO, cast

import structlog

from throughline.client.arguments import DEFAULT_LIMITS, Limits, read_number, read_text
from throughline.client.client import Client
from throughline.db.connection.address import DatabaseUrls
from throughline.db.connection.pooler import check_urls
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import InvalidInput, SettingInvalid
from throughline.logs import DroppingOutput
from throughline.settings import ClientSettings
from throughline.turn.follow_run import HEARTBEAT_SECONDS, Following

OURS = "throughline."
"""Prefix of the service's logger names: each logger has the name of its module."""


def log_to_standard_error() -> None:
    """Send the service's warnings to standard error, unless the program has configured structlog itself.

    The program's own log lines stay unchanged. Structlog has one configuration for all loggers, in which only the
    output can differ between them: it is created for each logger, with that logger's arguments. A program that
    configures structlog later replaces this configuration.
    """
    if structlog.is_configured():
        return
    of_others = structlog.get_config()["logger_factory"]

    def make(*args: Any) -> object:  # noqa: ANN401  # structlog's own signature
        if not _is_ours(args):
            return of_others(*args)
        return _Warnings(cast("TextIO", DroppingOutput(sys.stderr)))  # an output without being a TextIO

    structlog.configure(logger_factory=make)


class _Warnings(structlog.PrintLogger):
    """Logger that writes warnings and errors only."""

    def debug(self, message: str) -> None:
        """Discard the message."""

    info = debug


def _is_ours(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], str) and args[0].startswith(OURS)


POOL_SIZE, LARGEST_POOL = 4, 200
"""Default and largest size of the pool. Few are enough: a wait for an answer holds no connection."""

LEAST_HEARTBEAT_SECONDS = 0.1
"""Shortest interval between two checks of whether a worker is active, during a wait.

The interval is `no_worker_timeout_seconds` if that is short, so that no check comes later than the timeout.
"""


@asynccontextmanager
async def connect(
    database_url: str = "",
    *,
    direct_url: str = "",
    user: str = "local",
    pool_size: int = POOL_SIZE,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncGenerator[Client]:
    """Yield a client that acts as `user`, who is created if new.

    Without `database_url`, the environment's DATABASE_URL and DATABASE_DIRECT_URL locate the database; with it, neither
    is read. `direct_url` is needed if `database_url` leads to a pooler. Up to `pool_size` connections are open, and one
    that listens for notifications. With DATABASE_LISTEN=false in the environment there is none, and the client polls.

    Raises InvalidInput, SettingInvalid without an address, DatabaseUnavailable, and DatabaseUnusable if the addresses
    or the schema are not what this version needs. The client does not upgrade the schema.
    """
    if not 1 <= read_number(pool_size, field="pool_size") <= LARGEST_POOL:
        raise InvalidInput(f"pool_size is {pool_size}; a pool has 1 to {LARGEST_POOL}.", field="pool_size")
    user = read_text(user, field="user")
    urls = DatabaseUrls(database_url, direct_url) if database_url else _urls_of_environment(direct_url)
    log_to_standard_error()
    urls = await check_urls(replace(urls, listens=ClientSettings().database_listen))
    database = await Database.open(_config(urls, pool_size, limits))
    try:
        owner_id = await database.users.get_or_create(user)
        heartbeat_seconds = min(max(limits.no_worker_timeout_seconds, LEAST_HEARTBEAT_SECONDS), HEARTBEAT_SECONDS)
        following = Following(database.followed_runs, time.monotonic, heartbeat_seconds=heartbeat_seconds)
        yield Client(database, following, owner_id, user=user, limits=limits)
    finally:
        await database.close()


def _urls_of_environment(direct_url: str) -> DatabaseUrls:
    settings = ClientSettings()
    if not settings.database_url:
        raise SettingInvalid(
            "DATABASE_URL is not set. Set it in the environment, or give `connect` the address of the database "
            "that the workers use; `throughline db address` prints that of the embedded database."
        )
    return DatabaseUrls(settings.database_url, direct_url or settings.database_direct_url)


def _config(urls: DatabaseUrls, pool_size: int, limits: Limits) -> DatabaseConfig:
    share = DatabaseConfig(
        url="", pool_size=pool_size, pool_timeout_seconds=limits.db_pool_timeout_seconds, caps=limits.caps
    )
    return share.at(urls)
