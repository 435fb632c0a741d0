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

from fakes.raw_sql import WAITING, hold_rows, run_sql, slow_request, until_sql
from throughline.db.connection import migrations
from throughline.db.connection.address import DatabaseUrls, parse_address
from throughline.db.connection.connect_failures import explain_connect
from throughline.db.connection.migrations import head_revision
from throughline.db.connection.pooler import check_urls
from throughline.db.database import Database, DatabaseConfig
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


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_every_usual_scheme_is_understood(scheme: str) -> None:
    address = parse_address(f"{scheme}://anna:p%40ss@db.example:6432/chat")

    assert address.url.drivername == "postgresql+asyncpg"
    assert address.arguments() == {
        "host": "db.example",
        "port": 6432,
        "user": "anna",
        "password": "p@ss",
        "database": "chat",
    }


def test_a_unix_socket_is_named_in_the_query() -> None:
    arguments = parse_address("postgresql://anna@/chat?host=/var/run/postgresql").arguments()

    assert (arguments["host"], arguments["port"]) == ("/var/run/postgresql", 5432)


@pytest.mark.parametrize(
    ("written", "hosts", "ports"),
    [
        ("anna:p%2C@db1:5432,db2:5433/chat", ["db1", "db2"], [5432, 5433]),
        ("anna@db1,db2:5433/chat", ["db1", "db2"], [5432, 5433]),
        ("anna@[::1]:5433,db2/chat", ["::1", "db2"], [5433, 5432]),
        ("anna@/chat?host=db1,db2&port=5432,5433", ["db1", "db2"], [5432, 5433]),
        ("anna@/chat?host=db1,/run/sockets&port=5433", ["db1", "/run/sockets"], [5433, 5433]),
        ("anna@/chat?host=db1:5433&host=db2", ["db1", "db2"], [5433, 5432]),
    ],
)
def test_an_address_may_name_several_servers(written: str, hosts: list[str], ports: list[int]) -> None:
    address = parse_address(f"postgresql://{written}")

    arguments = address.arguments()

    assert (arguments["host"], arguments["port"], arguments["database"]) == (hosts, ports, "chat")
    assert arguments["target_session_attrs"] == "read-write"  # the service writes
    assert address.place.split(", ")[1].startswith(hosts[1])


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        ("postgresql://db1,db2:1/chat?port=6432", (6432, 1)),
        ("postgresql:///chat?host=db1&host=db2&port=1&port=2", (1, 2)),
    ],
)
def test_ports_in_parameters_are_meant_for_the_hosts(written: str, ports: tuple[int, ...]) -> None:
    assert tuple(host.port for host in parse_address(written).hosts) == ports


def test_what_is_asked_of_servers_may_be_written() -> None:
    address = parse_address("postgresql://db1,db2/chat?target_session_attrs=primary")

    assert address.extra == {"target_session_attrs": "primary"}


@pytest.mark.parametrize("mode", ["disable", "prefer", "require", "verify-full"])
def test_sslmode_becomes_what_the_driver_calls_ssl(mode: str) -> None:
    address = parse_address(f"postgresql://h/d?sslmode={mode}&channel_binding=require")

    assert address.extra == {"ssl": mode}
    assert not address.url.query


def test_a_root_certificate_makes_a_context() -> None:
    address = parse_address(f"postgresql://h/d?sslmode=verify-ca&sslrootcert={ssl.get_default_verify_paths().cafile}")

    context = address.extra["ssl"]
    assert isinstance(context, ssl.SSLContext)
    assert not context.check_hostname


@pytest.mark.parametrize("written", ["sslmode=verify-full&sslrootcert=system", "sslrootcert=system"])
def test_the_certificates_of_the_machine_are_checked_in_full(written: str) -> None:
    context = parse_address(f"postgresql://h/d?{written}").extra["ssl"]

    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "postgresql://user:password@host"),
        ("localhost/db", "postgresql://user:password@host"),
        ("postgresql://anna:secret@h:port/d", "postgresql://user:password@host"),
        ("mysql://anna:secret@h/d", "mysql://"),
        ("postgresql+psycopg2://anna:secret@h/d", r"Leave out `\+…`: postgresql://"),
        ("postgresql://anna:secret@h/d?sslmode=maybe", "sslmode=maybe"),
        ("postgresql://anna:secret@h/d?sslmode=disable&sslrootcert=system", "Write sslmode=verify-full"),
        ("postgresql://anna:secret@h/d?sslmode=verify-ca&sslrootcert=system", "sslmode=verify-ca with sslrootcert"),
        ("postgresql://anna:secret@h/d?sslmode=verify-full&sslrootcert=/none", "sslrootcert=/none"),
        ("postgresql://anna:secret@h/d?colour=red", "colour"),
        ("postgresql://anna:hunter@secret@h:5432/d", "%40"),
        ("postgresql://anna:secret@h/d?port=many", "port=many"),
        ("postgresql://anna:secret@h:70000/d", "the port 70000, which is not from 1 to 65535"),
        ("postgresql://anna:secret@pg2..internal/d", "the host `pg2..internal`, of which a part is empty or too long"),
        ("postgresql://anna:secret@h1,,h2/d", "the host ``, which is not host:port"),
        ("postgresql://anna:secret@h1,h2:many/d", "the host `h2:many`, which is not host:port"),
        ("postgresql://anna:secret@/d?host=h1,h2,h3&port=1,2", "3 hosts and 2 ports. Give one port for all"),
        ("postgresql://anna:hunter@secret,word@h/d", "%40"),
        ("postgresql://anna:secret@h/d?target_session_attrs=writable", "target_session_attrs=writable. Allowed: any,"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_the_password(url: str, told: str) -> None:
    with pytest.raises(DatabaseUnusable, match=told) as refused:
        parse_address(url)

    assert "secret" not in str(refused.value)
    direct = DatabaseUrls("postgresql://h/d", url or "no-address")
    with pytest.raises(DatabaseUnusable, match=f"DATABASE_DIRECT_URL .*{told}"):
        direct.session_address()


def test_with_a_direct_address_the_other_is_a_pooler_s() -> None:
    one, two = DatabaseUrls("postgresql://h/d"), DatabaseUrls("postgresql://h:6432/d", "postgresql://h/d")

    assert one.for_sessions == two.for_sessions == "postgresql://h/d"
    assert (one.shared_address().is_pooled, one.session_address().place) == (False, "h:5432")
    assert (two.shared_address().is_pooled, two.shared_address().place) == (True, "h:6432")
    assert (two.session_address().is_pooled, two.session_address().place) == (False, "h:5432")


def test_parameters_for_other_clients_poolers_are_left_aside() -> None:
    address = parse_address("postgresql://h/d?pgbouncer=true&prepared_statement_cache_size=0")

    assert not address.url.query
    assert not address.extra


AT_ONCE = 50


@pytest.fixture
async def full(database_url: str) -> Database:
    """A database whose only connection for requests is soon waited for in vain."""
    return await Database.open(DatabaseConfig(url=database_url, pool_size=1, pool_timeout_seconds=0.01))


async def test_a_schema_that_became_newer_under_a_running_process_serves_it(
    database: Database, database_url: str
) -> None:
    before = await database.check_ready()
    await run_sql(database_url, "update alembic_version set version_num = '9999'")

    assert (before, await database.check_ready()) == (head_revision(), "9999")


async def test_a_pool_that_is_full_is_load_and_no_outage(full: Database, database_url: str) -> None:
    async with slow_request(full, database_url):
        assert await full.check_ready() == head_revision()
    await full.close()


async def test_many_who_ask_at_once_cost_one_answer_and_get_the_same(full: Database, database_url: str) -> None:
    async with hold_rows(database_url, "select 1 from write_checks for update"):
        asking = [asyncio.create_task(full.check_ready()) for _ in range(AT_ONCE)]
        await until_sql(database_url, WAITING)
        waiting = await run_sql(database_url, WAITING)
        for task in asking[: AT_ONCE // 2]:
            task.cancel()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    await full.close()

    assert len(waiting) == 1
    assert [answer for answer in answers if not isinstance(answer, asyncio.CancelledError)] == [head_revision()] * (
        AT_ONCE // 2
    )


async def test_a_failure_is_told_to_all_and_the_next_who_asks_looks_again(full: Database, database_url: str) -> None:
    await run_sql(database_url, "update alembic_version set version_num = '0018'")
    answers = await asyncio.gather(*(full.check_ready() for _ in range(3)), return_exceptions=True)
    await run_sql(database_url, "update alembic_version set version_num = $1", head_revision())

    await full.check_ready()
    await full.close()

    assert [type(answer) for answer in answers] == [DatabaseUnusable] * 3


async def test_the_migration_scripts_are_read_once(full: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await full.check_ready()
    monkeypatch.setattr(migrations, "_scripts", lambda: Path("nowhere"))

    assert await full.check_ready() == before
    await full.close()
