"""Parsing of database URLs, in any usual spelling, into arguments for SQLAlchemy and asyncpg."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from throughline.domain.errors import DatabaseUnusable

_DRIVER_NAMES = {"postgres", "postgresql", "postgresql+asyncpg"}
_SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
_IGNORED = {
    *("channel_binding", "gssencmode", "application_name", "connect_timeout", "fallback_application_name"),
    *("pgbouncer", "prepared_statement_cache_size", "statement_cache_size"),
}
"""URL parameters for libpq and other clients. They are accepted and dropped; some values the service sets itself."""
_TAKEN = {"host", "port", "sslmode", "ssl", "sslrootcert", "target_session_attrs"}
DATABASE_URL, DATABASE_DIRECT_URL = "DATABASE_URL", "DATABASE_DIRECT_URL"

ConnectArguments = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed database URL.

    `url` names server, role, password and database. `extra` holds the arguments `ssl` and `target_session_attrs` of
    `asyncpg.connect`, if the URL has such parameters.

    `is_pooled`: the address leads to a connection pooler, which may run each transaction on a different server
    connection. `setting` is the name of the setting that holds the URL.
    """

    url: URL
    extra: ConnectArguments
    is_pooled: bool = False
    setting: str = DATABASE_URL

    @property
    def place(self) -> str:
        """Host and port, or the socket's folder, without role and password; for error texts."""
        host = str(self.url.host or self.url.query.get("host") or "localhost")
        port = self.url.port or self.url.query.get("port", 5432)
        return host if host.startswith("/") else f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def arguments(self) -> dict[str, object]:
        """Return all arguments of `asyncpg.connect` for this address."""
        arguments: dict[str, object] = {"user": self.url.username, "password": self.url.password}
        arguments["host"] = self.url.host or self.url.query.get("host")
        arguments["port"] = self.url.port or int(str(self.url.query.get("port", 5432)))
        arguments["database"] = self.url.database
        return {**{name: value for name, value in arguments.items() if value is not None}, **self.extra}


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """The configured database URLs. If `direct_url` is empty, all work uses `url`.

    With a `direct_url`, `url` is a connection pooler's, which assigns a server connection per transaction. Work that
    needs a database session of its own (LISTEN, migrations, leases) connects to PostgreSQL at `direct_url`.
    """

    url: str
    direct_url: str = ""

    @property
    def for_sessions(self) -> str:
        """The URL for work that needs a database session of its own: `direct_url`, or `url` if that is empty."""
        return self.direct_url or self.url

    def shared_address(self) -> Address:
        """Return the address in `url`, for ordinary transactions. Raises DatabaseUnusable if it cannot be parsed."""
        return replace(parse_address(self.url), is_pooled=bool(self.direct_url))

    def session_address(self) -> Address:
        """Return the address in `for_sessions`, for connections that keep one database session.

        Raises DatabaseUnusable if the URL cannot be parsed.
        """
        if not self.direct_url:
            return parse_address(self.url)
        return parse_address(self.direct_url, DATABASE_DIRECT_URL)


def parse_address(text: str, setting: str = DATABASE_URL) -> Address:
    """Parse the database URL `text`. `setting` is the name of the setting that holds it, for error texts.

    Raises DatabaseUnusable; the error text never contains the password.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise DatabaseUnusable(
            f"{setting} cannot be read. Write it as postgresql://user:password@host:5432/database."
        ) from None
    _check_driver(url.drivername, setting)
    if "@" in (url.host or ""):  # part of the password, which error texts must not show as a host
        raise DatabaseUnusable(
            f"{setting} cannot be read: it has more than one `@`. Percent-encode the password (`@` as %40, `%` as %25)."
        )
    options = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    try:
        _check_options(options)
        extra = _extra(options)
    except ValueError as wrong:
        raise DatabaseUnusable(f"{setting} has {wrong}") from None
    kept: dict[str, str] = {name: options[name] for name in ("host", "port") if name in options}
    return Address(url.set(drivername="postgresql+asyncpg", query=kept), extra, setting=setting)


def _check_driver(name: str, setting: str) -> None:
    scheme, plus, _driver = name.partition("+")
    if name in _DRIVER_NAMES:
        return
    if plus and scheme in _DRIVER_NAMES:
        raise DatabaseUnusable(
            f"{setting} begins with `{name}://`, which names another driver. Leave out `+…`: {scheme}://…"
        )
    raise DatabaseUnusable(f"{setting} begins with `{name}://`. Only PostgreSQL is served: postgresql://…")


def _check_options(options: Mapping[str, str]) -> None:
    unknown = sorted(options.keys() - _TAKEN - _IGNORED)
    if unknown:
        raise ValueError(f"the parameter `{unknown[0]}`, which is not known. Allowed: {', '.join(sorted(_TAKEN))}.")
    if not options.get("port", "0").isdecimal():
        raise ValueError(f"port={options['port']}, which is not a number.")


SYSTEM = "system"
"""The value of `sslrootcert` for the machine's own certificates."""


def _extra(options: Mapping[str, str]) -> ConnectArguments:
    extra: dict[str, object] = {}
    mode, certificate = options.get("sslmode") or options.get("ssl"), options.get("sslrootcert")
    if mode is None and certificate == SYSTEM:
        mode = "verify-full"
    if mode is not None:
        extra["ssl"] = _ssl(mode, certificate)
    if "target_session_attrs" in options:
        extra["target_session_attrs"] = options["target_session_attrs"]
    return extra


def _ssl(mode: str, root_certificate: str | None) -> str | ssl.SSLContext:
    """Return asyncpg's `ssl` argument: the mode, or an SSL context if a root certificate is to be checked.

    A certificate file is used only by the `verify-…` modes. `system` means the machine's certificates, and needs the
    mode `verify-full`, as in libpq. Raises ValueError for an unknown mode or an unreadable file.
    """
    if mode not in _SSL_MODES:
        raise ValueError(f"sslmode={mode}. Allowed: {', '.join(sorted(_SSL_MODES))}.")
    if root_certificate == SYSTEM:
        if mode != "verify-full":
            raise ValueError(f"sslmode={mode} with sslrootcert={SYSTEM}. Write sslmode=verify-full.")
        return ssl.create_default_context()
    if not mode.startswith("verify-") or root_certificate is None:
        return mode
    try:
        context = ssl.create_default_context(cafile=root_certificate)
    except OSError:
        raise ValueError(f"sslrootcert={root_certificate}, which is not a readable certificate file.") from None
    context.check_hostname = mode == "verify-full"
    return context
