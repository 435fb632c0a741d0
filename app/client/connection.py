"""Connecting: the database that DATABASE_URL names, checked, for as long as the block is open."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.client.client import Client
from app.db.database import Database, DatabaseConfig
from app.db.run_follow import Following
from app.domain.errors import SettingInvalid
from app.settings import Settings, read_settings

POOL_SIZE = 4
"""A script needs few: none is held while it waits for an answer."""


@asynccontextmanager
async def connect(database_url: str = "", *, user: str = "local") -> AsyncGenerator[Client]:
    """Yield a client that acts as `user`, who is created if new; `database_url` is the setting DATABASE_URL if empty.

    Raises SettingInvalid without an address, DatabaseUnavailable, and DatabaseUnusable where the schema is not what
    this version needs: it is not upgraded from here.
    """
    settings = read_settings()
    address = database_url or settings.database_url
    if not address:
        raise SettingInvalid("DATABASE_URL is not set. Give the address of the database that the workers use.")
    database = await Database.open(_config(settings, address))
    try:
        owner_id = await database.users.get_or_create(user)
        following = Following(database, time.monotonic)
        yield Client(following, owner_id, user=user, worker_timeout_seconds=settings.no_worker_timeout_seconds)
    finally:
        await database.close()


def _config(settings: Settings, address: str) -> DatabaseConfig:
    return DatabaseConfig(
        url=address,
        pool_size=min(POOL_SIZE, settings.db_pool_size),
        pool_timeout_seconds=settings.db_pool_timeout_seconds,
        caps=settings.caps,
    )
