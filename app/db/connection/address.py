"""Turns the operator's DATABASE_URL, in any usual spelling, into what SQLAlchemy and asyncpg take."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.domain.errors import DatabaseUnusable

_DRIVER_NAMES = {"postgres", "postgresql", "postgresql+asyncpg"}
_SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
_IGNORED = {"channel_binding", "gssencmode", "application_name", "connect_timeout", "fallback_application_name"}
"""libpq's parameters that asyncpg does not know and the service can do without or sets itself."""
_CACHE_SIZE = "prepared_statement_cache_size"
_TAKEN = {"host", "port", "sslmode", "ssl", "sslrootcert", "target_session_attrs", _CACHE_SIZE}

ConnectArguments = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Address:
    """`url` names server, role and database for SQLAlchemy; `extra` holds further arguments of `asyncpg.connect`.

    `keeps_statements`: what was prepared on a connection is still there for the next statement; not so behind a pooler
    that hands each transaction to another server connection (`prepared_statement_cache_size=0`).
    """

    url: URL
    extra: ConnectArguments
    keeps_statements: bool = True

    @property
    def place(self) -> str:
        """Host and port, or the socket's folder: where the server should be, without who asks."""
        host = str(self.url.host or self.url.query.get("host") or "localhost")
        port = self.url.port or self.url.query.get("port", 5432)
        return host if host.startswith("/") else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def arguments(self) -> dict[str, object]:
        """Return everything `asyncpg.connect` needs for a connection beside the pool."""
        arguments: dict[str, object] = {"user": self.url.username, "password": self.url.password}
        arguments["host"] = self.url.host or self.url.query.get("host")
        arguments["port"] = self.url.port or int(str(self.url.query.get("port", 5432)))
        arguments["database"] = self.url.database
        return {**{name: value for name, value in arguments.items() if value is not None}, **self.extra}


def parse_address(text: str) -> Address:
    """Return the address behind a DATABASE_URL. Raises DatabaseUnusable; the text never shows the password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise DatabaseUnusable(
            "DATABASE_URL cannot be read. Write it as postgresql://user:password@host:5432/database."
        ) from None
    if url.drivername not in _DRIVER_NAMES:
        raise DatabaseUnusable(
            f"DATABASE_URL begins with `{url.drivername}://`. Only PostgreSQL is served: postgresql://…"
        )
    options = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    _check_options(options)
    kept: dict[str, str] = {name: options[name] for name in ("host", "port", _CACHE_SIZE) if name in options}
    keeps_statements = int(options.get(_CACHE_SIZE, "1")) > 0
    return Address(url.set(drivername="postgresql+asyncpg", query=kept), _extra(options), keeps_statements)


def _check_options(options: Mapping[str, str]) -> None:
    unknown = sorted(options.keys() - _TAKEN - _IGNORED)
    if unknown:
        raise DatabaseUnusable(
            f"DATABASE_URL has the parameter `{unknown[0]}`, which is not known. Allowed: {', '.join(sorted(_TAKEN))}."
        )
    for name in ("port", _CACHE_SIZE):
        if not options.get(name, "0").isdecimal():
            raise DatabaseUnusable(f"DATABASE_URL has {name}={options[name]}, which is not a number.")


def _extra(options: Mapping[str, str]) -> ConnectArguments:
    extra: dict[str, object] = {}
    mode = options.get("sslmode") or options.get("ssl")
    if mode is not None:
        extra["ssl"] = _ssl(mode, options.get("sslrootcert"))
    if "target_session_attrs" in options:
        extra["target_session_attrs"] = options["target_session_attrs"]
    return extra


def _ssl(mode: str, root_certificate: str | None) -> str | ssl.SSLContext:
    """Return asyncpg's `ssl` argument; it knows the modes, but a root certificate only as a context."""
    if mode not in _SSL_MODES:
        raise DatabaseUnusable(f"DATABASE_URL has sslmode={mode}. Allowed: {', '.join(sorted(_SSL_MODES))}.")
    if not mode.startswith("verify-") or root_certificate in {None, "system"}:
        return mode if root_certificate != "system" else ssl.create_default_context()
    try:
        context = ssl.create_default_context(cafile=root_certificate)
    except OSError:
        raise DatabaseUnusable(
            f"DATABASE_URL has sslrootcert={root_certificate}, which is not a readable certificate file."
        ) from None
    context.check_hostname = mode == "verify-full"
    return context
