"""Output of the service's log lines in other programs, whose standard output must not be touched."""

import sys
from typing import Any, TextIO, cast

import structlog

from throughline.logs import DroppingOutput

OURS = "throughline."
"""Prefix of the service's logger names: each logger has the name of its module."""


def log_to_standard_error() -> None:
    """Send the service's warnings to standard error, unless the program has configured structlog itself.

    The program's own log lines stay unchanged. Structlog has one configuration for all loggers, in which only the
    output can differ between them: it is created for each logger, with that logger's arguments. A program that
    configures structlog later replaces this configuration.
    """
    if structlog.is_configured():
        return
    of_others = structlog.get_config()["logger_factory"]

    def make(*args: Any) -> object:  # noqa: ANN401  # structlog's own signature
        if not _is_ours(args):
            return of_others(*args)
        return _Warnings(cast("TextIO", DroppingOutput(sys.stderr)))  # an output without being a TextIO

    structlog.configure(logger_factory=make)


class _Warnings(structlog.PrintLogger):
    """Logger that writes warnings and errors only."""

    def debug(self, message: str) -> None:
        """Discard the message."""

    info = debug


def _is_ours(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], str) and args[0].startswith(OURS)
