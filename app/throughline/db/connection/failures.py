"""Translation of the exceptions of asyncpg and SQLAlchemy into the service's errors.

The exceptions' texts are dropped, because they may contain user data.
"""

import ssl
from dataclasses import dataclass

import asyncpg  # type: ignore[import-untyped]  # ships no types
from sqlalchemy.exc import DBAPIError

from throughline.domain.errors import (
    DatabaseBusy,
    DatabaseFull,
    DatabaseUnavailable,
    DatabaseUnusable,
    InvalidInput,
    NotFound,
    ThroughlineError,
)

# Translation of a connection pooler's errors into the service's errors.
#
# PgBouncer uses one SQLSTATE for nearly all errors, so their texts are compared.

ADVICE = (
    "Set DATABASE_URL to the pooler, in transaction mode, and DATABASE_DIRECT_URL to the same database of PostgreSQL "
    "itself. Without a pooler, set only DATABASE_URL, to PostgreSQL itself."
)
_PROTOCOL = "08P01"
_LOST_STATEMENT = {"26000", "42P05"}
_REFUSED_SETTINGS = ("unsupported startup parameter",)
_NOT_LET_IN = ("authentication failed", "no such database", "no such user", "does not exist", "not allowed")
_FULL = ("no more connections allowed",)


def explain_pooler(code: str, text: str) -> ThroughlineError | None:
    """Return the error for a pooler's refusal, None for all else, such as a lost server connection.

    `code` is the SQLSTATE. The text `text` is compared with PgBouncer's known texts and never shown.
    """
    if code in _LOST_STATEMENT:
        return DatabaseUnusable(
            f"A prepared statement was lost, as behind a connection pooler in transaction mode. {ADVICE}"
        )
    if code != _PROTOCOL:
        return None
    if _has(text, _REFUSED_SETTINGS):
        return DatabaseUnusable(f"A connection pooler refused the settings that every connection needs. {ADVICE}")
    if _has(text, _NOT_LET_IN):
        return DatabaseUnusable(
            "The connection pooler refused the connection: check role, password and database of DATABASE_URL."
        )
    if _has(text, _FULL):
        return DatabaseFull(
            "The connection pooler has no connection left. Try again in a moment.", delay_seconds=RETRY_AFTER_SECONDS
        )
    return None


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)


class PoolTimeout(Exception):
    """The wait for a free connection of the pool timed out."""


_CLIENT_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Exceptions of asyncpg itself; InternalClientError occurs on a connection that the server is just closing."""

DRIVER_ERRORS = (DBAPIError, PoolTimeout, asyncpg.PostgresError, *_CLIENT_ERRORS, OSError, TimeoutError)
"""All exceptions of statements and connection attempts; DBAPIError comes only from migrations."""

RETRY_AFTER_SECONDS = 1.0
AGAIN = "Try again in a moment."
NO_ANSWER = "The database did not answer in time."
WRONG_ADDRESS = "DATABASE_URL cannot be used: check its parameters, and the certificate files of its sslmode."
UNTRUSTED = (
    "The server's certificate is not trusted ({reason}). Check the host of DATABASE_URL, and `sslrootcert`, the "
    "certificate of the authority that signed it."
)
NO_TLS = "The server accepts no TLS connections, but the sslmode of DATABASE_URL requires one."
_REJECTED = "rejected SSL upgrade"
"""A part of asyncpg's text for a refused TLS upgrade. The exception's class, ConnectionError, has other causes, too."""

ROLLED_BACK = frozenset({"40001", "40P01"})
"""SQLSTATEs of a serialization failure and a deadlock: nothing of the transaction was stored."""

KEY_TAKEN = "23505"
"""SQLSTATE of a unique key that a concurrent transaction inserted first."""

LOCK_NOT_FREE = "55P03"
"""SQLSTATE of a lock that was waited for too long."""

_CONFLICTS = ROLLED_BACK | {KEY_TAKEN}
"""SQLSTATEs of conflicts that a retry resolves.

Primary keys count too: a transaction whose answer was lost may still commit while its repetition inserts the same ids.
"""

_LOST_CLASSES = ("08", "57P", "25P03", "25P04")
"""SQLSTATE prefixes of lost connections: broken, closed by an operator, or ended by a transaction time limit."""

READ_ONLY = "25006"
"""SQLSTATE of a write on a standby: after a failover the connection still leads to the former primary."""

_GONE = "23503"
"""SQLSTATE of a row whose owner, session or other parent row was deleted by a concurrent erasure."""

_BUSY = {
    "57014": "took too long over a statement",
    LOCK_NOT_FREE: "waited too long for a lock",
}
_FULL_CLASSES = {"53300": "has no connection left", "53": "is out of resources"}
_TEMPORARY_CLASSES = {
    "57": "was interrupted by its operator",
    "58030": "cannot read or write its files",
}
_SET_UP_CLASSES = ("28", "3D", "42501")


@dataclass(frozen=True, slots=True)
class DatabaseFailure:
    """The error of the service for a driver's exception. `is_repeatable`: the transaction may be retried at once.

    `is_rolled_back`: the server undid it for others that ran at the same time. Distributed databases do so often.
    """

    error: ThroughlineError
    is_repeatable: bool
    is_rolled_back: bool = False


def explain(error: BaseException) -> DatabaseFailure:
    """Translate a driver's exception into one of the service's errors.

    Of its text only the reason for which a TLS certificate is not trusted is kept.
    """
    if isinstance(error, PoolTimeout | TimeoutError):
        is_full = isinstance(error, PoolTimeout)
        words = "All database connections of this process are in use." if is_full else NO_ANSWER
        return DatabaseFailure(_unavailable(words), is_repeatable=False)
    if isinstance(error, asyncpg.ClientConfigurationError):
        return DatabaseFailure(DatabaseUnusable(WRONG_ADDRESS), is_repeatable=False)
    if _is_about_tls(error):
        return DatabaseFailure(_tls_failure(error), is_repeatable=False)
    if _is_bad_value(error):
        return DatabaseFailure(_bad_value(), is_repeatable=False)
    return _explain_code(error, sqlstate(error))


def _explain_code(error: BaseException, code: str) -> DatabaseFailure:
    """Translate by SQLSTATE; `code` is "" if the failure did not come from the server."""
    refused = explain_pooler(code, str(error))
    if refused is not None:
        return DatabaseFailure(refused, is_repeatable=False)
    if code in _CONFLICTS or is_stale_plan(error):
        is_rolled_back, words = code in ROLLED_BACK, "The database was too busy with the same rows."
        return DatabaseFailure(_unavailable(words), is_repeatable=True, is_rolled_back=is_rolled_back)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return DatabaseFailure(_lost(READ_ONLY), is_repeatable=True)
    if code == _GONE:
        return DatabaseFailure(NotFound("What the request belongs to was erased meanwhile."), is_repeatable=False)
    if not code or code == READ_ONLY or code.startswith(_LOST_CLASSES):
        return DatabaseFailure(_lost(code), is_repeatable=True)
    return DatabaseFailure(_by_code(code), is_repeatable=False)


def sqlstate(error: BaseException) -> str:
    """Return the exception's SQLSTATE, "" if the failure did not come from the server."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(origin, "sqlstate", None) or "")


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is broken or leads to a read-only server, so that it must not be used again."""
    if isinstance(error, asyncpg.PostgresError):
        code = sqlstate(error)
        return code == READ_ONLY or code.startswith(_LOST_CLASSES)
    if isinstance(error, _CLIENT_ERRORS):
        return not _is_bad_value(error)
    return isinstance(error, OSError) and not isinstance(error, TimeoutError)


def _unavailable(detail: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"{detail} {AGAIN}", delay_seconds=RETRY_AFTER_SECONDS)


def _lost(code: str) -> DatabaseUnavailable:
    """Return the error for a lost connection or, by `code`, a server that accepts no writes.

    The next attempt uses a new connection, see ConnectionPool.
    """
    if code == READ_ONLY:
        return _unavailable(
            "The database accepts no writes at present: the server that answers is a standby or is set to read only."
        )
    return _unavailable("The database cannot be reached or closed the connection.")


def is_stale_plan(error: BaseException) -> bool:
    """Whether a migration made a prepared statement or a cached type invalid; asyncpg then drops its caches."""
    return isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError)


def _is_bad_value(error: BaseException) -> bool:
    """Whether asyncpg itself refused an argument, for example a number too large for its column."""
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)


def _is_about_tls(error: BaseException) -> bool:
    """Whether the server's certificate is not trusted, or the server refused TLS."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ConnectionError) and _REJECTED in str(error)
    )


def _tls_failure(error: BaseException) -> DatabaseUnavailable:
    """Return the error for an untrusted certificate or refused TLS.

    It is a temporary one, since a certificate may be renewed while the service runs.
    """
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
    for passing, words in _TEMPORARY_CLASSES.items():
        if code.startswith(passing):
            return _unavailable(f"The database {words} (SQLSTATE {code}).")
    if code.startswith("22"):
        return _bad_value()
    if code.startswith(_SET_UP_CLASSES):
        return DatabaseUnusable(
            f"The database refused the connection (SQLSTATE {code}): check role, password, database name and rights "
            "of DATABASE_URL."
        )
    return DatabaseUnusable(
        f"The database refused a statement (SQLSTATE {code}). Check its schema with `throughline db status`."
    )


def _bad_value() -> InvalidInput:
    return InvalidInput("The request holds a value that the database cannot store.")
