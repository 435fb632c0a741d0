"""Translation of a connection pooler's errors into the service's errors.

PgBouncer uses one SQLSTATE for nearly all errors, so their texts are compared.
"""

from throughline.domain.errors import DatabaseFull, DatabaseUnusable, ThroughlineError

ADVICE = (
    "Set DATABASE_URL to the pooler, in transaction mode, and DATABASE_DIRECT_URL to the same database of PostgreSQL "
    "itself. Without a pooler, set only DATABASE_URL, to PostgreSQL itself."
)
RETRY_AFTER_SECONDS = 1.0
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
