"""Causes of a failed connection at the start of a program, each with a remedy: address, network, server, role, TLS.

The texts are for operators. `failures.py` translates the failures of a running program, whose texts also reach users.
"""

import asyncio
import errno
import socket
import ssl
import struct
from contextlib import suppress
from enum import Enum, auto

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

_NETWORK: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "the host name cannot be resolved. Check its spelling, and the DNS of this machine."),
    (
        ConnectionRefusedError,
        "the connection was refused, because no server listens there. Start PostgreSQL, or correct host and port.",
    ),
    (FileNotFoundError, "no server has its socket in this folder. Start PostgreSQL, or correct the folder and port."),
    (PermissionError, "the account of this process may not open the server's socket. Change its rights, or use TCP."),
    (
        asyncpg.TargetServerAttributeNotMatched,
        "no server there fits the address's target_session_attrs. Name the primary server, or leave the parameter out.",
    ),
)
_NO_ROUTE = {errno.EHOSTUNREACH, errno.ENETUNREACH}
NO_ROUTE = "no network route leads to the host. Check the address, and the network or VPN of this machine."
STARTING = "the server is starting or stopping. Try again in a moment."
NOT_IN_TIME = "the host did not answer in time. Check host and port, and whether a firewall is in between."

_WRONG_LOGIN = "28P01"
INCOMPLETE_LOGIN = (
    "the server asks for a password, and DATABASE_URL has none. Write it as postgresql://role:password@host/name."
)
_REFUSALS = {
    _WRONG_LOGIN: "role or password of DATABASE_URL is wrong. Correct them; in the password, write `@` as %40.",
    "3D000": "the database of DATABASE_URL does not exist there. Correct its name, or create it with `createdb`.",
    "42501": "the role may not connect to the database. Let its owner run `grant connect on database … to …`.",
}
"""Causes of a refused connection, with their remedies, by SQLSTATE."""

_REFUSED_ROLE = "28000"
_UNENCRYPTED = "no encryption"
TLS_OFF = "the server does not admit this role without TLS. Take `sslmode=disable` out of DATABASE_URL."
_ROLE_REFUSALS = (
    ("not permitted to log in", "the role may not log in. Let an administrator run `alter role … login`."),
    (
        "pg_hba.conf",
        "the server does not admit this role, database or client address. Add them to its pg_hba.conf.",
    ),
    ("does not exist", "the role of DATABASE_URL does not exist on this server. Correct its name, or create the role."),
    (
        "authentication failed",
        "the account of this process is not the role. Give host and password in DATABASE_URL, or change the account.",
    ),
)
"""Causes for the SQLSTATE 28000, by a part of PostgreSQL's error text. That text is compared and never shown."""


class Answer(Enum):
    """The answer of a server to a request for TLS.

    FOREIGN: bytes that PostgreSQL does not send. CLOSED: the connection was closed without an answer. SILENT: no answer
    came in time.
    """

    TLS = auto()
    ERROR = auto()
    NO_TLS = auto()
    FOREIGN = auto()
    CLOSED = auto()
    SILENT = auto()


_BY_ANSWER = {
    Answer.NO_TLS: NO_TLS,
    Answer.FOREIGN: "the server that answers is not PostgreSQL. Correct host and port (PostgreSQL's is usually 5432).",
    Answer.CLOSED: "the server closed the connection without an answer. Check host and port, and the server's log.",
    Answer.SILENT: "the server accepts connections but does not answer: it hangs or is not PostgreSQL. Check the port.",
}


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
        return _REFUSALS.get(code, "")
    if _UNENCRYPTED in str(error) and address.extra.get("ssl") == "disable":  # other modes have tried TLS
        return TLS_OFF
    return next((cause for words, cause in _ROLE_REFUSALS if words in str(error)), "")


def _network_cause(error: BaseException) -> str:
    """Return the cause that follows from the exception alone, '' if none does."""
    if isinstance(error, asyncpg.CannotConnectNowError):
        return STARTING
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return NO_ROUTE
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "reason", None) or "no reason given"
        return f"the TLS handshake failed ({reason}). Check sslmode and certificates of DATABASE_URL."
    return next((cause for kind, cause in _NETWORK if isinstance(error, kind)), "")


async def _answered(error: BaseException, address: Address) -> str:
    """Connect again, ask for TLS, and return the cause that the server's answer shows.

    asyncpg's exceptions do not contain that answer. Returns '' for other exceptions, for a Unix socket, and if the
    answer shows no cause.
    """
    is_ours = isinstance(error, ConnectionError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError)
    if not is_ours or address.place.startswith("/"):
        return ""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            answer = await _ask_for_tls(address)
    except OSError:  # also TimeoutError
        return NOT_IN_TIME if isinstance(error, TimeoutError) else ""
    if answer is Answer.NO_TLS and isinstance(error, TimeoutError):
        return NOT_IN_TIME
    return _BY_ANSWER.get(answer, "")


async def _ask_for_tls(address: Address) -> Answer:
    """Return what the server answers to a request for TLS. Raises OSError if it cannot be reached."""
    arguments = address.arguments()
    reader, writer = await asyncio.open_connection(str(arguments.get("host", "localhost")), str(arguments["port"]))
    try:
        writer.write(SSL_REQUEST)
        return await _read_answer(reader)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _read_answer(reader: asyncio.StreamReader) -> Answer:
    """Return the answer to a request for TLS, from up to 8 bytes.

    PostgreSQL sends the one byte `S` or `N`, or an error. An SSH server's longer greeting begins with `S`, too.
    """
    try:
        async with asyncio.timeout(PROBE_SECONDS / 2):
            first = await reader.read(8)
    except TimeoutError:
        return Answer.SILENT
    except ConnectionError:
        return Answer.CLOSED
    if first.startswith(b"E"):
        return Answer.ERROR
    return {b"S": Answer.TLS, b"N": Answer.NO_TLS, b"": Answer.CLOSED}.get(first, Answer.FOREIGN)
