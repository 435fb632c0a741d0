"""Causes of a failed connection at the start of a program, each with a remedy: address, network, server, role, TLS.

The texts are for operators. `failures.py` translates the failures of a running program, whose texts also reach users.
"""

import asyncio
import errno
import socket
import ssl
import struct
from contextlib import suppress

import asyncpg  # type: ignore[import-untyped]  # ships no types

from throughline.db.connection.address import DATABASE_URL, Address
from throughline.db.connection.failures import NO_TLS, RETRY_AFTER_SECONDS, explain, sqlstate
from throughline.domain.errors import (
    DatabaseBusy,
    DatabaseFull,
    DatabaseUnavailable,
    DatabaseUnusable,
    ThroughlineError,
)

PROBE_SECONDS = 2.0
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""The message with which a client asks PostgreSQL for TLS. PostgreSQL answers `S` or `N`, or `E` with an error."""

NO_ROUTE = "no network route leads to the host. Check the address, and the network or VPN of this machine."
NOT_IN_TIME = "the host did not answer in time. Check host and port, and whether a firewall is in between."
INCOMPLETE_LOGIN = (
    "the server asks for a password, and DATABASE_URL has none. Write it as postgresql://role:password@host/name."
)
TLS_OFF = "the server does not admit this role without TLS. Take `sslmode=disable` out of DATABASE_URL."

_BY_CLASS: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.CannotConnectNowError, "the server is starting or stopping. Try again in a moment."),
    (socket.gaierror, "the host name cannot be resolved. Check its spelling, and the DNS of this machine."),
    (
        ConnectionRefusedError,
        "the connection was refused, because no server listens there. Start PostgreSQL, or correct host and port.",
    ),
    (FileNotFoundError, "no server has its socket in this folder. Start PostgreSQL, or correct the folder and port."),
    (PermissionError, "the account of this process may not open the server's socket. Change its rights, or use TCP."),
    (
        asyncpg.TargetServerAttributeNotMatched,
        "no server there is what target_session_attrs asks for (of several hosts: read-write). Name the primary.",
    ),
)
_WRONG_LOGIN, _REFUSED_ROLE = "28P01", "28000"
_BY_STATE = {
    _WRONG_LOGIN: "role or password of DATABASE_URL is wrong. Correct them; in the password, write `@` as %40.",
    "3D000": "the database of DATABASE_URL does not exist there. Correct its name, or create it with `createdb`.",
    "42501": "the role may not connect to the database. Let its owner run `grant connect on database … to …`.",
}
_BY_WORDS = (
    ("not permitted to log in", "the role may not log in. Let an administrator run `alter role … login`."),
    ("pg_hba.conf", "the server does not admit this role, database or client address. Add them to its pg_hba.conf."),
    ("does not exist", "the role of DATABASE_URL does not exist on this server. Correct its name, or create the role."),
    (
        "authentication failed",
        "the account of this process is not the role. Give host and password in DATABASE_URL, or change the account.",
    ),
)
"""Causes for the SQLSTATE 28000, by a part of PostgreSQL's error text. That text is compared and never shown."""

SILENT = "the server accepts connections but does not answer: it hangs or is not PostgreSQL. Check the port."
CLOSED = "the server closed the connection without an answer. Check host and port, and the server's log."
FOREIGN = "the server that answers is not PostgreSQL. Correct host and port (PostgreSQL's is usually 5432)."
_BY_ANSWER = {b"S": "", b"N": NO_TLS, b"": CLOSED}
"""Causes by the whole answer to a request for TLS. An SSH server's longer greeting begins with `S`, too."""


async def explain_connect(error: BaseException, address: Address) -> ThroughlineError:
    """Return the error for a failed attempt to connect to `address`. May connect once more to find the cause.

    The error names host, port, setting, cause and remedy. Without a known cause it is the error of `explain`, to which
    `located` adds the location.
    """
    cause, is_permanent = _refusal(error, address), True
    if not cause:
        cause, is_permanent = _network_cause(error) or await _answered(error, address), False
    if not cause:
        return located(explain(error).error, address)
    text = f"{_where(address)}: {cause.replace(DATABASE_URL, address.setting)}"
    if is_permanent:
        return DatabaseUnusable(text)
    return DatabaseUnavailable(text, delay_seconds=RETRY_AFTER_SECONDS)


def located(failure: ThroughlineError, address: Address) -> ThroughlineError:
    """Return the error with the location of the database in its text.

    A DatabaseUnavailable gets host, port and setting, a DatabaseUnusable the setting. Other errors are unchanged.
    """
    if isinstance(failure, DatabaseUnavailable):
        kind = type(failure) if isinstance(failure, DatabaseBusy | DatabaseFull) else DatabaseUnavailable
        return kind(f"{_where(address)}: {failure.detail}", delay_seconds=failure.delay_seconds)
    if isinstance(failure, DatabaseUnusable):
        return DatabaseUnusable(failure.detail.replace(DATABASE_URL, address.setting))
    return failure


def _where(address: Address) -> str:
    return f"PostgreSQL at {address.place} ({address.setting})"


def _refusal(error: BaseException, address: Address) -> str:
    """Return why the server refused role or database, '' if it did not or the reason is not known."""
    code = sqlstate(error)
    if code == _WRONG_LOGIN and address.url.password is None:
        return INCOMPLETE_LOGIN
    if code != _REFUSED_ROLE:
        return _BY_STATE.get(code, "")
    if "no encryption" in str(error) and address.extra.get("ssl") == "disable":  # other modes have tried TLS
        return TLS_OFF
    return next((cause for words, cause in _BY_WORDS if words in str(error)), "")


def _network_cause(error: BaseException) -> str:
    """Return the cause that follows from the exception alone, '' if none does."""
    if isinstance(error, OSError) and error.errno in {errno.EHOSTUNREACH, errno.ENETUNREACH}:
        return NO_ROUTE
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "reason", None) or "no reason given"
        return f"the TLS handshake failed ({reason}). Check sslmode and certificates of DATABASE_URL."
    return next((cause for kind, cause in _BY_CLASS if isinstance(error, kind)), "")


async def _answered(error: BaseException, address: Address) -> str:
    """Connect again, ask for TLS, and return the cause that the server's answer shows.

    asyncpg's exceptions do not contain that answer. Returns '' for other exceptions, for a Unix socket, for several
    hosts, and if the answer shows no cause.
    """
    is_ours = isinstance(error, ConnectionError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError)
    if not is_ours or len(address.hosts) > 1 or address.place.startswith("/"):
        return ""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            cause = await _ask_for_tls(address)
    except OSError:  # also TimeoutError
        return NOT_IN_TIME if isinstance(error, TimeoutError) else ""
    return NOT_IN_TIME if cause == NO_TLS and isinstance(error, TimeoutError) else cause


async def _ask_for_tls(address: Address) -> str:
    """Return the cause that the answer to a request for TLS shows. Raises OSError if the server cannot be reached."""
    arguments = address.arguments()
    reader, writer = await asyncio.open_connection(str(arguments.get("host", "localhost")), str(arguments["port"]))
    try:
        writer.write(SSL_REQUEST)
        async with asyncio.timeout(PROBE_SECONDS / 2):
            answer = await reader.read(8)
        return "" if answer.startswith(b"E") else _BY_ANSWER.get(answer, FOREIGN)
    except TimeoutError:
        return SILENT
    except ConnectionError:
        return CLOSED
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
