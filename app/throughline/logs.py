"""Set-up of structured logs, called once by each program. No log field contains users' text.

A line that cannot be written, because the disk is full or nobody reads standard error any more, is dropped and counted.
A turn or a request must not fail for it.
"""

import io
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog


class DroppingOutput(io.TextIOBase):
    """A text output that drops what cannot be written. `dropped` counts the failed writes."""

    def __init__(self, output: TextIO | None) -> None:
        """Write to `output`; None, for a program without standard error, drops everything."""
        super().__init__()
        self._output: Any = output  # Any: None fails as a closed output does
        self.dropped = 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether a person reads the output."""
        try:
            return self._output is not None and self._output.isatty()
        except ValueError:  # the output was closed
            return False

    def write(self, text: str) -> int:
        """Write the text, or count it as dropped."""
        try:
            self._output.write(text)
            self._output.flush()
        except (AttributeError, OSError, ValueError):  # None has no `write`; ValueError: the output was closed
            self.dropped += 1
        return len(text)

    def flush(self) -> None:
        """Do nothing, because each write is flushed."""


_outputs: list[DroppingOutput] = []
"""The output of the last set-up, none before the first."""


def dropped_lines() -> int:
    """Return how many log lines of this process were dropped since logging was set up."""
    return sum(output.dropped for output in _outputs)


def say(line: str) -> None:
    """Print a line for people on standard output; drop it if nobody can read it."""
    DroppingOutput(sys.stdout).write(f"{line}\n")


def set_up_logging(level: str, log_format: str) -> None:
    """Send structured logs to standard error, as JSON or in a form for people.

    The format `auto` chooses the form for people at a terminal. `level` is that of the service's own events; libraries
    log from WARNING on.
    """
    output = DroppingOutput(sys.stderr)
    for_people = log_format == "console" or (log_format == "auto" and output.isatty())
    _outputs[:] = [output]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=output.isatty()) if for_people else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, _drop_exception_text, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        # a cast, because an object of our own can be an output without being a TextIO
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", output)),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _drop_exception_text],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(output)
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
