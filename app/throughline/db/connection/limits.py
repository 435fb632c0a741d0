"""What bounds our statements on the server: settings of a connection, or, behind a pooler, of each transaction."""

from collections.abc import Mapping

SESSION_SETTINGS: Mapping[str, str] = {
    "application_name": "throughline",
    "timezone": "UTC",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "statement_timeout": "7s",
    "lock_timeout": "3s",
    "idle_in_transaction_session_timeout": "4s",
    "client_connection_check_interval": "1s",
}
"""No intent waits for anything but the database inside a transaction: 4 s idle in one means a stopped process.

A statement whose answer nobody waits for any more ends with its connection, a second later at most.
"""

POOLED_SETTINGS: Mapping[str, str] = {"application_name": SESSION_SETTINGS["application_name"]}
"""All that a pooler takes when a connection starts: it shares server connections, so they keep no other setting."""

_LIMIT_TRANSACTIONS = (
    "select set_config('transaction_timeout', '20s', {}) where current_setting('server_version_num')::int >= 170000"
)
"""A process that was stopped between two messages of one statement is not idle to PostgreSQL, but still holds locks."""

LIMIT_SESSION = _LIMIT_TRANSACTIONS.format("false")
"""Sent once on a connection of our own: older servers refuse the setting at start."""

BEGIN = "begin"
BEGIN_LIMITED = "; ".join([
    BEGIN,
    *(f"set local {name} = '{value}'" for name, value in SESSION_SETTINGS.items() if name not in POOLED_SETTINGS),
    _LIMIT_TRANSACTIONS.format("true"),
])
"""One message: the settings hold from the first statement on, and end with the transaction."""
