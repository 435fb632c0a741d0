"""A database that cannot be reached at start: the error names host, port, setting, cause and remedy."""

import asyncio
import secrets
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # ships no types
import pytest
from sqlalchemy import URL

from fakes.raw_sql import run_sql
from throughline.db.connection.address import DatabaseUrls, parse_address
from throughline.db.connection.connect_failures import explain_connect
from throughline.db.connection.pooler import check_urls
from throughline.domain.errors import DatabaseUnavailable, DatabaseUnusable, ThroughlineError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SECRET = "secret-word"
ADDRESS = parse_address(f"postgresql://anna:{SECRET}@db.example:5433/notes")


async def refusal(url: str) -> ThroughlineError:
    with pytest.raises(ThroughlineError) as refused:
        await check_urls(DatabaseUrls(url))
    assert SECRET not in refused.value.detail
    return refused.value


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncGenerator[str]:
    """Yield the host and port of a server that answers everything with these bytes, and with silence for None."""
    is_over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        if answer is None:
            await is_over.wait()
        writer.write(answer or b"")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        is_over.set()


async def test_a_name_that_is_not_resolved_is_told() -> None:
    error = await refusal(f"postgresql://anna:{SECRET}@name.invalid/notes")

    assert isinstance(error, DatabaseUnavailable)
    assert error.detail == (
        "PostgreSQL at name.invalid:5432 (DATABASE_URL): the host name cannot be resolved. Check its spelling, and the "
        "DNS of this machine."
    )


async def test_a_port_on_which_nothing_listens_is_told() -> None:
    with socket.socket() as bound:  # bound, but not listening
        bound.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{bound.getsockname()[1]}"
        error = await refusal(f"postgresql://anna:{SECRET}@{place}/notes")

    assert isinstance(error, DatabaseUnavailable)
    assert error.detail.startswith(
        f"PostgreSQL at {place} (DATABASE_URL): the connection was refused, because no server"
    )


async def test_a_folder_without_a_socket_is_told(tmp_path: Path) -> None:
    error = await refusal(f"postgresql://anna:{SECRET}@/notes?host={tmp_path}")

    assert f"PostgreSQL at {tmp_path} (DATABASE_URL): no server has its socket in this folder." in error.detail


@pytest.mark.parametrize("mode", ["", "?sslmode=prefer", "?sslmode=require"])
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b"\x00\x00"])
async def test_a_server_that_is_not_postgresql_is_told(answer: bytes, mode: str) -> None:
    async with answering(answer) as place:
        error = await refusal(f"postgresql://anna:{SECRET}@{place}/notes{mode}")

    assert error.detail.startswith(f"PostgreSQL at {place} (DATABASE_URL): the server that answers is not PostgreSQL.")


async def test_a_server_that_closes_the_connection_is_told() -> None:
    async with answering(b"") as place:
        error = await refusal(f"postgresql://anna:{SECRET}@{place}/notes")

    assert "the server closed the connection without an answer." in error.detail


async def test_a_server_that_speaks_no_tls_is_told_where_the_address_asks_for_it() -> None:
    async with answering(b"N") as place:
        error = await refusal(f"postgresql://anna:{SECRET}@{place}/notes?sslmode=require")

    assert "The server accepts no TLS connections, but the sslmode of DATABASE_URL requires one." in error.detail


async def test_a_server_that_never_answers_is_told() -> None:
    async with answering(None) as place:
        error = await explain_connect(TimeoutError(), parse_address(f"postgresql://anna:{SECRET}@{place}/notes"))

    assert isinstance(error, DatabaseUnavailable)
    assert "the server accepts connections but does not answer: it hangs or is not PostgreSQL." in error.detail


async def test_the_direct_address_is_named_where_it_is_meant() -> None:
    direct = parse_address(f"postgresql://anna:{SECRET}@db.example/notes", "DATABASE_DIRECT_URL")

    error = await explain_connect(asyncpg.InvalidPasswordError(SECRET), direct)

    assert error.detail.startswith(
        "PostgreSQL at db.example:5432 (DATABASE_DIRECT_URL): role or password of DATABASE_DI"
    )


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (asyncpg.InvalidPasswordError(SECRET), DatabaseUnusable, "role or password of DATABASE_URL is wrong. Correct"),
        (asyncpg.InvalidCatalogNameError(SECRET), DatabaseUnusable, "does not exist there. Correct its name"),
        (
            asyncpg.InsufficientPrivilegeError(SECRET),
            DatabaseUnusable,
            "may not connect to the database. Let its owner",
        ),
        (asyncpg.CannotConnectNowError(SECRET), DatabaseUnavailable, "starting or stopping. Try again"),
        (OSError(113, SECRET), DatabaseUnavailable, "no network route leads to the host."),
        (ssl.SSLError(1, SECRET), DatabaseUnavailable, "the TLS handshake failed"),
        (PermissionError(13, SECRET), DatabaseUnavailable, "may not open the server's socket."),
    ],
)
async def test_what_the_driver_tells_is_told_with_a_remedy(
    failure: Exception, kind: type[ThroughlineError], words: str
) -> None:
    error = await explain_connect(failure, ADDRESS)

    assert isinstance(error, kind)
    assert error.detail.startswith("PostgreSQL at db.example:5433 (DATABASE_URL): ")
    assert words in error.detail
    assert SECRET not in error.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'no pg_hba.conf entry for host "::1", user "anna", database "notes", no encryption',
            "Add them to its pg_hba.conf",
        ),
        (
            'no pg_hba.conf entry for host "::1", user "anna", database "notes", SSL encryption',
            "does not admit this role",
        ),
        ('role "anna" is not permitted to log in', "the role may not log in."),
        ("Peer authentication failed", "account of this process is not the role"),
        ("translated", "SQLSTATE 28000"),
    ],
)
async def test_a_refused_role_is_told_with_the_reason(text: str, words: str) -> None:
    error = await explain_connect(asyncpg.InvalidAuthorizationSpecificationError(f"{text} {SECRET}"), ADDRESS)

    assert isinstance(error, DatabaseUnusable)
    assert words in error.detail
    assert SECRET not in error.detail


async def test_an_address_without_the_password_that_is_asked_for_is_told() -> None:
    error = await explain_connect(asyncpg.InvalidPasswordError(SECRET), parse_address("postgresql://anna@db/notes"))

    assert "the server asks for a password, and DATABASE_URL has none." in error.detail


async def test_a_server_that_admits_only_tls_is_told_where_the_address_turns_it_off() -> None:
    text = f'no pg_hba.conf entry for host "::1", user "anna", database "{SECRET}", no encryption'
    address = parse_address(f"postgresql://anna:{SECRET}@db.example/notes?sslmode=disable")

    error = await explain_connect(asyncpg.InvalidAuthorizationSpecificationError(text), address)

    assert "does not admit this role without TLS. Take `sslmode=disable` out of DATABASE_URL." in error.detail


async def test_a_missing_database_or_role_and_missing_rights_are_told(direct_server_url: str) -> None:
    whole = parse_address(direct_server_url).url.set(drivername="postgresql")
    name = f"throughline_refused_{secrets.token_hex(6)}"
    await run_sql(direct_server_url, f"create database {name}")

    async def told(url: URL) -> str:
        error = await refusal(url.render_as_string(hide_password=False))
        assert isinstance(error, DatabaseUnusable)
        return error.detail

    try:
        await run_sql(direct_server_url, f'revoke connect on database {name} from public, "{whole.username}"')
        shut = await told(whole.set(database=name))
        missing = await told(whole.set(database=f"{name}_x"))
        unknown = await told(whole.set(username=f"{name}_x"))
    finally:
        await run_sql(direct_server_url, f"drop database {name}")

    assert "the role may not connect to the database." in shut
    assert "the database of DATABASE_URL does not exist there." in missing
    assert any(
        words in unknown
        for words in ("the role of DATABASE_URL does not exist", "DATABASE_URL is wrong", "does not admit this role")
    )
