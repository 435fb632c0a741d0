"""DATABASE_URL in all its usual spellings."""

import ssl

import pytest

from throughline.db.connection.address import DatabaseUrls, parse_address
from throughline.domain.errors import DatabaseUnusable


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
