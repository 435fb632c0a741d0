"""Time limits for statements and transactions, as session settings or, behind a pooler, per transaction."""

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
"""Settings of each connection that is not behind a pooler.

Transactions wait for nothing but the database. So one that is idle for 4 s belongs to a stopped process, and the server
ends it. With `client_connection_check_interval` a statement ends within a second after its connection was closed.
"""

POOLED_SETTINGS: Mapping[str, str] = {"application_name": SESSION_SETTINGS["application_name"]}
"""The only setting sent when connecting to a pooler: its server connections are shared and keep no others."""

_LIMIT_TRANSACTIONS = (
    "select set_config('transaction_timeout', '20s', {}) where current_setting('server_version_num')::int >= 170000"
)
"""SQL by which PostgreSQL 17 or newer ends a transaction after 20 s; `{}` is `true` for the current transaction only.

It ends the transaction of a process that stopped while it sent a statement. PostgreSQL does not count such a
transaction as idle, but it holds locks.
"""

LIMIT_SESSION = _LIMIT_TRANSACTIONS.format("false")
"""Statement that sets the 20 s limit, sent once on each connection that is not behind a pooler.

As a startup parameter, PostgreSQL before 17 would refuse the setting.
"""

BEGIN = "begin"
BEGIN_LIMITED = "; ".join([
    BEGIN,
    *(f"set local {name} = '{value}'" for name, value in SESSION_SETTINGS.items() if name not in POOLED_SETTINGS),
    _LIMIT_TRANSACTIONS.format("true"),
])
"""SQL that begins a transaction behind a pooler and sets its limits, sent as one message.

The limits end with the transaction.
"""
