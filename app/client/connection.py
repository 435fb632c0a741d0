"""Connecting: the database that DATABASE_URL names, checked, for as long as the block is open."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.client.client import Client
from app.db.connection.address import DatabaseUrls
from app.db.connection.pooler import check_urls
from app.db.database import Database, DatabaseConfig
from app.db.run_follow import Following
from app.domain.errors import SettingInvalid
from app.settings import Settings, read_settings

POOL_SIZE = 4
"""A script needs few: none is held while it waits for an answer."""


@asynccontextmanager
async def connect(database_url: str = "", *, direct_url: str = "", user: str = "local") -> AsyncGenerator[Client]:
    """Yield a client that acts as `user`, who is created if new.

    Without a `database_url` the settings DATABASE_URL and DATABASE_DIRECT_URL say where the database is; `direct_url`
    is for one that is a pooler's. Raises SettingInvalid without an address, DatabaseUnavailable, and DatabaseUnusable
    where the addresses or the schema are not what this version needs: it is not upgraded from here.
    """
    settings = read_settings()
    urls = DatabaseUrls(database_url, direct_url)
    if not database_url:
        urls = DatabaseUrls(settings.database_url, direct_url or settings.database_direct_url)
    if not urls.url:
        raise SettingInvalid("DATABASE_URL is not set. Give the address of the database that the workers use.")
    await check_urls(urls)
    database = await Database.open(_config(settings, urls))
    try:
        owner_id = await database.users.get_or_create(user)
        following = Following(database, time.monotonic)
        yield Client(following, owner_id, user=user, worker_timeout_seconds=settings.no_worker_timeout_seconds)
    finally:
        await database.close()


def _config(settings: Settings, urls: DatabaseUrls) -> DatabaseConfig:
    return DatabaseConfig(
        url=urls.url,
        direct_url=urls.direct_url,
        pool_size=min(POOL_SIZE, settings.db_pool_size),
        pool_timeout_seconds=settings.db_pool_timeout_seconds,
        caps=settings.caps,
    )
