"""Where the log lines of the database's part go in other programs: what these print is theirs, cron mails it."""

import logging
import sys

import structlog


def log_to_standard_error() -> None:
    """Send warnings to standard error, unless the program has set structlog up itself."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING), logger_factory=_standard_error
        )


def _standard_error(*_: object) -> structlog.PrintLogger:
    """Look for standard error at each line: a program may put something else in its place."""
    return structlog.PrintLogger(sys.stderr)
