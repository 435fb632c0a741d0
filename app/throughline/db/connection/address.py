"""Parsing of database URLs, in any usual spelling, into arguments for SQLAlchemy and asyncpg."""

import re
import ssl
from collections.abc import Mapping, Sequence
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
_ATTRIBUTES = ("any", "read-write", "primary", "read-only", "standby", "prefer-standby")
_READ_WRITE, _PREFER_STANDBY = "read-write", "prefer-standby"
_END_OF_PLACES = re.compile("[/?@]")
DEFAULT_PORT, MOST_PORT = 5432, 65_535
DATABASE_URL, DATABASE_DIRECT_URL, DATABASE_READ_URL = "DATABASE_URL", "DATABASE_DIRECT_URL", "DATABASE_READ_URL"

ConnectArguments = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Host:
    """One of the servers that a URL names. `name` is a host, an IP address or a socket's folder; None: the default."""

    name: str | None
    port: int = DEFAULT_PORT

    @property
    def place(self) -> str:
        """Host and port, or the socket's folder, for error texts."""
        name = self.name or "localhost"
        return name if name.startswith("/") else f"[{name}]:{self.port}" if ":" in name else f"{name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed database URL.

    `url` names server, role, password and database; with several servers, the first. `hosts` are all of them. `extra`
    holds the arguments `ssl` and `target_session_attrs` of `asyncpg.connect`, if the URL has such parameters. With
    several servers the latter is `read-write` by default, since the service writes, and `prefer-standby` for
    DATABASE_READ_URL.

    `is_pooled`: the address leads to a connection pooler, which may run each transaction on a different server
    connection. `setting` is the name of the setting that holds the URL.
    """

    url: URL
    extra: ConnectArguments
    hosts: tuple[Host, ...]
    is_pooled: bool = False
    setting: str = DATABASE_URL

    @property
    def place(self) -> str:
        """Host and port, or the socket's folder, of each server, without role and password; for error texts."""
        return ", ".join(host.place for host in self.hosts)

    def arguments(self) -> dict[str, object]:
        """Return the arguments of `asyncpg.connect` for this address: hosts and ports as lists if there are several."""
        if len(self.hosts) == 1:
            return self.arguments_for(self.hosts[0])
        places = {"host": [host.name for host in self.hosts], "port": [host.port for host in self.hosts]}
        return {**self.arguments_for(self.hosts[0]), **places}

    def arguments_for(self, host: Host) -> dict[str, object]:
        """Return all arguments of `asyncpg.connect` for one server of this address."""
        arguments = {"user": self.url.username, "password": self.url.password, "database": self.url.database}
        found = {"host": host.name, "port": host.port, **arguments}
        return {**{name: value for name, value in found.items() if value is not None}, **self.extra}


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """The configured database URLs. If `direct_url` is empty, all work uses `url`.

    With a `direct_url`, `url` is a connection pooler's, which assigns a server connection per transaction. Work that
    needs a database session of its own (LISTEN, migrations, leases) connects to PostgreSQL at `direct_url`.

    Unless the service `listens`, nothing needs a session, and a pooler's `url` suffices. Then `has_only_pooler`.
    """

    url: str
    direct_url: str = ""
    listens: bool = True
    has_only_pooler: bool = False

    @property
    def for_sessions(self) -> str:
        """The URL for work that needs a database session of its own: `direct_url`, or `url` if that is empty."""
        return self.direct_url or self.url

    def shared_address(self) -> Address:
        """Return the address in `url`, for ordinary transactions. Raises DatabaseUnusable if it cannot be parsed."""
        return replace(parse_address(self.url), is_pooled=bool(self.direct_url) or self.has_only_pooler)

    def session_address(self) -> Address:
        """Return the address in `for_sessions`, for connections that keep one database session unless none is needed.

        Raises DatabaseUnusable if the URL cannot be parsed.
        """
        if not self.direct_url:
            return self.shared_address()
        return parse_address(self.direct_url, DATABASE_DIRECT_URL)


def parse_address(text: str, setting: str = DATABASE_URL) -> Address:
    """Parse the database URL `text`. `setting` is the name of the setting that holds it, for error texts.

    Raises DatabaseUnusable; the error text never contains the password.
    """
    first, places = _split(text)
    try:
        url = make_url(first)
    except (ArgumentError, ValueError):
        raise DatabaseUnusable(
            f"{setting} cannot be read. Write it as postgresql://user:password@host:5432/database."
        ) from None
    _check_driver(url.drivername, setting)
    if "@" in (url.host or ""):  # part of the password, which error texts must not show as a host
        raise DatabaseUnusable(
            f"{setting} cannot be read: it has more than one `@`. Percent-encode the password (`@` as %40, `%` as %25)."
        )
    options = {name: value if isinstance(value, str) else _join(name, value) for name, value in url.query.items()}
    try:
        _check_options(options)
        hosts = _hosts_in(url, options, places)
        _check_hosts(hosts)
        usual = _PREFER_STANDBY if setting == DATABASE_READ_URL else _READ_WRITE
        extra = _extra(options, usual if len(hosts) > 1 else None)
    except ValueError as wrong:
        raise DatabaseUnusable(f"{setting} has {wrong}") from None
    kept: dict[str, str] = {name: options[name] for name in ("host", "port") if name in options}
    return Address(url.set(drivername="postgresql+asyncpg", query=kept), extra, hosts, setting=setting)


def _split(text: str) -> tuple[str, str]:
    """Return the URL with the first of its hosts alone, and all hosts as they are written if there are several."""
    scheme, _, behind = text.partition("://")
    role, at, rest = behind.partition("@")
    if not at or "/" in role.partition(":")[0]:  # no role: the `@` is none or stands behind the hosts
        role, at, rest = "", "", behind
    end = _END_OF_PLACES.search(rest)
    places = rest[: end.start()] if end else rest
    if "," not in places:
        return text, ""
    return f"{scheme}://{role}{at}{places.partition(',')[0]}{rest[len(places) :]}", places


def _join(name: str, values: Sequence[str]) -> str:
    """Return the value of a parameter that stands more than once: a list of hosts or ports, of others the last."""
    return ",".join(values) if name in {"host", "port"} else values[-1]


def _hosts_in(url: URL, options: Mapping[str, str], places: str) -> tuple[Host, ...]:
    """Return the servers that a URL names before the database, or else in its parameters `host` and `port`.

    As in libpq, `host=a,b` and `port=1,2` are lists of one length, or one port is meant for all. Raises ValueError.
    """
    if places:
        port = options.get("port", "")
        return tuple(_host(place, int(port) if port.isdecimal() else DEFAULT_PORT) for place in places.split(","))
    written = str(url.port) if url.port else options.get("port", str(DEFAULT_PORT))
    ports = [int(port) for port in written.split(",")]
    if url.host:
        return (Host(url.host, ports[0]),)
    names = options["host"].split(",") if "host" in options else [None]
    if len(ports) not in {1, len(names)}:
        raise ValueError(f"{len(names)} hosts and {len(ports)} ports. Give one port for all, or one for each host.")
    ports = ports * len(names) if len(ports) == 1 else ports
    return tuple(
        Host(name, port) if name is None or name.startswith("/") else _host(name, port)
        for name, port in zip(names, ports, strict=True)
    )


def _host(place: str, default_port: int) -> Host:
    """Return the server that `host`, `host:port` or `[address]:port` names. Raises ValueError."""
    if place.startswith("["):
        name, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") > 1:  # an IPv6 address in a parameter, where it needs no brackets
        name, port = place, ""
    else:
        name, _, port = place.partition(":")
    if not name or (port and not port.isdecimal()):
        raise ValueError(f"the host `{place}`, which is not host:port. Write host1:5432,host2:5432.")
    return Host(name, int(port or default_port))


def _check_hosts(hosts: Sequence[Host]) -> None:
    """Check ports, and names as they are looked up. Raises ValueError."""
    for host in hosts:
        if host.name is not None and not host.name.startswith("/"):
            try:
                host.name.encode("idna")
            except UnicodeError:
                raise ValueError(f"the host `{host.name}`, of which a part is empty or too long.") from None
        if not 0 < host.port <= MOST_PORT:
            raise ValueError(f"the port {host.port}, which is not from 1 to {MOST_PORT}.")


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
    if not all(port.isdecimal() for port in options.get("port", "0").split(",")):
        raise ValueError(f"port={options['port']}, which is not a number.")
    attribute = options.get("target_session_attrs", _READ_WRITE)
    if attribute not in _ATTRIBUTES:
        raise ValueError(f"target_session_attrs={attribute}. Allowed: {', '.join(_ATTRIBUTES)}.")


SYSTEM = "system"
"""The value of `sslrootcert` for the machine's own certificates."""


def _extra(options: Mapping[str, str], usual_attribute: str | None) -> ConnectArguments:
    """Return the further arguments; `usual_attribute` is asked of the servers unless the URL asks for one."""
    extra: dict[str, object] = {}
    mode, certificate = options.get("sslmode") or options.get("ssl"), options.get("sslrootcert")
    if mode is None and certificate == SYSTEM:
        mode = "verify-full"
    if mode is not None:
        extra["ssl"] = _ssl(mode, certificate)
    attribute = options.get("target_session_attrs", usual_attribute)
    if attribute is not None:
        extra["target_session_attrs"] = attribute
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
