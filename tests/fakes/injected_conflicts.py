"""Serialization failures for tests, as a distributed database ends any statement with them: one in twenty.

With TEST_CONFLICTS all transactions of the tests, and of the programs that they start, meet them. A statement fails
before it is executed; a commit fails after the server has undone the transaction.
"""

import logging
import os
import random
from collections.abc import Sequence

import asyncpg  # type: ignore[import-untyped]  # ships no types
import structlog

from throughline.db.connection import transactions
from throughline.db.connection.pool import Row, Statement

ONE_IN = 20
_Connected = transactions._OnConnection  # noqa: SLF001  # the one place where all statements pass


def is_asked() -> bool:
    """Return whether TEST_CONFLICTS is set."""
    return bool(os.environ.get("TEST_CONFLICTS"))


def inject_if_asked() -> None:
    """Let statements of this process fail, if TEST_CONFLICTS is set, without a line of the log for each."""
    if is_asked():
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
        transactions._OnConnection = _Conflicting  # type: ignore[misc]  # noqa: SLF001  # the one place where all pass


def _fails() -> bool:
    return random.randrange(ONE_IN) == 0


class _Conflicting(_Connected):
    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        if _fails():
            raise asyncpg.SerializationError("injected")
        return await super().fetch(statement, **parameters)

    async def execute(self, text: str) -> None:
        if text == "commit" and _fails():
            await super().execute("rollback")
            raise asyncpg.SerializationError("injected")
        await super().execute(text)
