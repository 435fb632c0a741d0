"""Where the log lines of the database's part go in other programs: what these print is theirs, cron mails it."""

import sys
from typing import Any

import structlog

OURS = "throughline."
"""How the names of our loggers begin: each is made with the name of its module."""


def log_to_standard_error() -> None:
    """Send our warnings to standard error, unless the program has set structlog up itself; its lines stay as they are.

    Structlog has one set-up for all, in which only the place that lines are written to can be told apart: it is made
    anew for each logger, from what that was made with. A program that sets structlog up later replaces this.
    """
    if structlog.is_configured():
        return
    of_others = structlog.get_config()["logger_factory"]

    def make(*args: Any) -> object:  # noqa: ANN401  # structlog's own signature
        return _Warnings(sys.stderr) if _is_ours(args) else of_others(*args)

    structlog.configure(logger_factory=make)


class _Warnings(structlog.PrintLogger):
    """Writes what somebody has to know about."""

    def debug(self, message: str) -> None:
        """Leave it out."""

    info = debug


def _is_ours(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], str) and args[0].startswith(OURS)
