"""Set-up of structured logs, called once by each program. No log field contains users' text."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def set_up_logging(level: str, log_format: str) -> None:
    """Send structured logs to standard error, as JSON or in a form for people.

    The format `auto` chooses the form for people at a terminal. `level` is that of the service's own events; libraries
    log from WARNING on.
    """
    for_people = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if for_people else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, _drop_exception_text, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _drop_exception_text],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


def _drop_exception_text(
    _logger: Any,  # noqa: ANN401  # structlog's own signature
    _name: str,
    event: MutableMapping[str, Any],
) -> MutableMapping[str, Any]:
    """Replace the exception of a log event by its class name, because its text may contain users' words.

    Database drivers write bound values into the text.
    """
    info = event.pop("exc_info", None)
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        event["error"] = type(error).__name__
    return event
