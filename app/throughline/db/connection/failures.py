"""Translates what the driver raises. The driver's own text is dropped: it may hold values, that is users' words."""

import ssl
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # ships no types
from sqlalchemy.exc import DBAPIError

from throughline.db.connection.pooler_errors import explain_pooler
from throughline.domain.errors import (
    DatabaseBusy,
    DatabaseFull,
    DatabaseUnavailable,
    DatabaseUnusable,
    InvalidInput,
    ThroughlineError,
)


class PoolTimeout(Exception):
    """All connections of the pool stayed in use for as long as one waits for a free one."""


_CLIENT_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Of asyncpg itself; an internal one meets whoever asks a connection that is just being closed by the server."""

DRIVER_ERRORS = (DBAPIError, PoolTimeout, asyncpg.PostgresError, *_CLIENT_ERRORS, OSError, TimeoutError)
"""Everything a statement or a connection attempt can raise; DBAPIError comes from migrations only."""

RETRY_AFTER_SECONDS = 1.0
AGAIN = "Try again in a moment."
NO_ANSWER = "The database did not answer in time."
WRONG_ADDRESS = (
    "The database cannot be asked as DATABASE_URL says: check its parameters, and the certificate files of its sslmode."
)
UNTRUSTED = (
    "The server's certificate is not trusted ({reason}). Check the host of DATABASE_URL, and `sslrootcert`, the "
    "certificate of the authority that signed it."
)
NO_TLS = "The server takes no TLS connections, and the sslmode of DATABASE_URL asks for one."
_REJECTED = "rejected SSL upgrade"
"""How asyncpg words it; the class is one for all broken connections."""

_CONFLICTS = {"40001", "40P01", "23505"}
"""Serialisation failure, deadlock, and a unique key that a racing transaction took first: a second look helps."""

_LOST_CLASSES = ("08", "57P", "25P03", "25P04")
"""The connection is gone: broken, closed by an operator, or ended after a transaction that took too long."""

READ_ONLY = "25006"
"""A failover: the connection still leads to the server that has become a standby."""

_BUSY = {
    "57014": "took too long over a statement",
    "55P03": "waited too long for a lock",
}
_FULL_CLASSES = {"53300": "has no connection left", "53": "is out of resources"}
_PASSING_CLASSES = {
    "57": "was interrupted by its operator",
    "58030": "cannot read or write its files",
}
_SET_UP_CLASSES = ("28", "3D", "42501")


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, in our words. `is_repeatable`: the same transaction may be tried again at once."""

    error: ThroughlineError
    is_repeatable: bool


def explain(error: BaseException) -> Failure:
    """Return what a driver's error means. Its text is never taken over."""
    if isinstance(error, PoolTimeout | TimeoutError):
        is_full = isinstance(error, PoolTimeout)
        words = "All database connections of this process are in use." if is_full else NO_ANSWER
        return Failure(_unavailable(words), is_repeatable=False)
    if isinstance(error, asyncpg.ClientConfigurationError):
        return Failure(DatabaseUnusable(WRONG_ADDRESS), is_repeatable=False)
    if _is_about_tls(error):
        return Failure(_tls_failure(error), is_repeatable=False)
    if _is_bad_value(error):
        return Failure(_bad_value(), is_repeatable=False)
    return _explain_code(error, sqlstate(error))


def _explain_code(error: BaseException, code: str) -> Failure:
    """`code` is "" where the failure did not come from the server."""
    refused = explain_pooler(code, str(error))
    if refused is not None:
        return Failure(refused, is_repeatable=False)
    if code in _CONFLICTS or is_stale_plan(error):
        return Failure(_unavailable("The database was too busy with the same rows."), is_repeatable=True)
    if not code or code == READ_ONLY or code.startswith(_LOST_CLASSES):
        return Failure(_lost(code), is_repeatable=True)
    return Failure(_by_code(code), is_repeatable=False)


def sqlstate(error: BaseException) -> str:
    """Return PostgreSQL's five-character code, "" where the failure did not come from the server."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(origin, "sqlstate", None) or "")


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection leads nowhere, or to a server that takes no writes: neither will it tomorrow."""
    if isinstance(error, asyncpg.PostgresError):
        code = sqlstate(error)
        return code == READ_ONLY or code.startswith(_LOST_CLASSES)
    if isinstance(error, _CLIENT_ERRORS):
        return not _is_bad_value(error)
    return isinstance(error, OSError) and not isinstance(error, TimeoutError)


def _unavailable(detail: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"{detail} {AGAIN}", delay_seconds=RETRY_AFTER_SECONDS)


def _lost(code: str) -> DatabaseUnavailable:
    """The next try is on a new connection, see ConnectionPool."""
    if code == READ_ONLY:
        return _unavailable("The database takes no writes for now: its server may be a standby.")
    return _unavailable("The database cannot be reached or closed the connection.")


def is_stale_plan(error: BaseException) -> bool:
    """Whether a migration made a prepared statement or a known type invalid; asyncpg drops what it has cached."""
    return isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError)


def _is_bad_value(error: BaseException) -> bool:
    """Whether asyncpg itself refused an argument, for example a number too large for its column."""
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)


def _is_about_tls(error: BaseException) -> bool:
    """Whether the server was reached and no TLS connection came about."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ConnectionError) and _REJECTED in str(error)
    )


def _tls_failure(error: BaseException) -> DatabaseUnavailable:
    """Of passing kind: a certificate may be renewed while the service runs."""
    detail = NO_TLS
    if isinstance(error, ssl.SSLCertVerificationError):
        detail = UNTRUSTED.format(reason=error.verify_message.rstrip("."))
    return DatabaseUnavailable(detail, delay_seconds=RETRY_AFTER_SECONDS)


def _by_code(code: str) -> ThroughlineError:
    if code in _BUSY:
        return DatabaseBusy(f"The database {_BUSY[code]}. {AGAIN}", delay_seconds=RETRY_AFTER_SECONDS)
    for full, words in _FULL_CLASSES.items():
        if code.startswith(full):
            return DatabaseFull(f"The database {words} (SQLSTATE {code}). {AGAIN}", delay_seconds=RETRY_AFTER_SECONDS)
    for passing, words in _PASSING_CLASSES.items():
        if code.startswith(passing):
            return _unavailable(f"The database {words} (SQLSTATE {code}).")
    if code.startswith("22"):
        return _bad_value()
    if code.startswith(_SET_UP_CLASSES):
        return DatabaseUnusable(
            f"The database refused us (SQLSTATE {code}): check role, password, database name and rights "
            "of DATABASE_URL."
        )
    return DatabaseUnusable(
        f"The database refused a statement (SQLSTATE {code}). Is its schema current? `throughline db status` tells."
    )


def _bad_value() -> InvalidInput:
    return InvalidInput("The request holds a value that the database cannot store.")
