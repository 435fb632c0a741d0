"""Checks at the start that the configured database URLs are suitable, in particular behind a connection pooler.

A pooler in transaction mode accepts LISTEN and session locks without error, but they have no effect. So the checks send
a notification on one connection, and see whether it arrives at another.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import asyncpg  # type: ignore[import-untyped]  # ships no types

from throughline.db.connection.address import Address, DatabaseUrls
from throughline.db.connection.connect_failures import explain_connect, located
from throughline.db.connection.connector import Connector
from throughline.db.connection.failures import ADVICE, DRIVER_ERRORS, explain
from throughline.db.connection.pool import ANSWER_TIMEOUT_SECONDS, POOLED_SETTINGS
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable

LISTENS = 3
"""Repetitions of the check: a pooler may by chance deliver one notification to the right connection."""


async def check_urls(urls: DatabaseUrls) -> DatabaseUrls:
    """Check that transactions can run at `url`, and that the URL for sessions keeps a database session.

    With a `direct_url` both URLs must lead to the same database. Return the URLs; unless the service `listens`, no
    session is needed, and they say whether a pooler's is the only one. Raises DatabaseUnusable, which names the setting
    to change, or DatabaseUnavailable, which names host and port.
    """
    async with connected(urls.shared_address()) as shared:
        has_intermediary = not urls.direct_url and await _has_intermediary(shared)
        if not urls.listens:
            return replace(urls, has_only_pooler=has_intermediary)
        if not urls.direct_url and not has_intermediary:
            return urls
        async with connected(urls.session_address()) as own:
            received = [await _receives_notification(own, shared) for _ in range(LISTENS)]
            if not all(received):
                raise await _refusal(own, urls)
    return urls


async def check_direct(urls: DatabaseUrls) -> None:
    """Check that the URL for sessions keeps a database session. The pooler, if one is configured, may be down.

    If the pooler answers, it must lead to the same database. Raises the errors of check_urls.
    """
    if urls.direct_url:
        with suppress(DatabaseUnavailable):
            await check_urls(urls)
            return
    async with connected(urls.session_address()) as own:
        if not urls.listens or not await _has_intermediary(own):
            return
        async with connected(urls.session_address()) as other:
            received = [await _receives_notification(own, other) for _ in range(LISTENS)]
            if not all(received):
                raise await _refusal(own, urls)


async def _has_intermediary(connection: asyncpg.Connection) -> bool:
    """Whether an intermediary reported another server process id than the one that answers.

    Poolers do this, and so do some hosts' proxies that keep sessions intact.
    """
    await connection.execute("begin")  # keeps prepare and execute on one server connection
    answering = await connection.fetchval("select pg_backend_pid()")
    await connection.execute("commit")
    return bool(answering != connection.get_server_pid())


async def _receives_notification(listener: asyncpg.Connection, sender: asyncpg.Connection) -> bool:
    """Whether `listener` receives a notification from `sender`: it has a session, and both use one database.

    PostgreSQL signals listeners before it answers the sender, and they deliver before answering their next statement.
    """
    channel = f"throughline_check_{secrets.token_hex(8)}"
    received: list[object] = []

    def receive(*payload: object) -> None:
        received.append(payload)

    await listener.add_listener(channel, receive)
    await sender.execute(f"notify {channel}")
    await listener.execute("select 1")
    await listener.remove_listener(channel, receive)
    return bool(received)


async def _refusal(own: asyncpg.Connection, urls: DatabaseUrls) -> DatabaseUnusable:
    if not urls.direct_url:
        return DatabaseUnusable(
            f"DATABASE_URL leads to a connection pooler in transaction mode. {ADVICE} If there is only the pooler, set "
            "DATABASE_LISTEN=false."
        )
    if await _has_intermediary(own):
        return DatabaseUnusable(
            f"DATABASE_DIRECT_URL leads to a connection pooler, too, or to another database. {ADVICE}"
        )
    return DatabaseUnusable(
        "DATABASE_DIRECT_URL leads to another database than DATABASE_URL: a notification sent through one does "
        "not reach the other. Both must name the same database of the same server."
    )


@asynccontextmanager
async def connected(
    address: Address, *, answer_seconds: float = ANSWER_TIMEOUT_SECONDS
) -> AsyncGenerator[asyncpg.Connection]:
    """Yield a connection without session settings and cached statements, so that a pooler accepts it, too.

    Each statement has to be answered within `answer_seconds`.
    Raises the service's errors, which name the setting of the URL, for failures inside the block.
    """
    connection = await _connect(address, answer_seconds)
    try:
        yield connection
    except DRIVER_ERRORS as error:
        raise located(explain(error).error, address) from None
    finally:
        connection.terminate()


async def _connect(address: Address, answer_seconds: float) -> asyncpg.Connection:
    """Return a new connection. Raises the errors of explain_connect."""
    try:
        return await Connector(address).connect(
            server_settings=dict(POOLED_SETTINGS),
            command_timeout=answer_seconds,
            statement_cache_size=0,
        )
    except DRIVER_ERRORS as error:
        failure = error
    raise await explain_connect(failure, address)
