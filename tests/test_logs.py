"""A log that cannot be written is no reason for anything else to fail: its lines are dropped and counted."""

import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from throughline.logs import DroppingOutput, dropped_lines, say, set_up_logging
from throughline.telemetry import PrometheusMetrics

FULL = Path("/dev/full")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root, config = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**config)
    root.handlers[:] = handlers
    root.setLevel(level)


def full_disk() -> TextIO:
    if not FULL.exists():
        pytest.skip("no /dev/full here, so no file that is always full")
    return FULL.open("w", encoding="utf-8")


def pipe_without_a_reader() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", encoding="utf-8")


def closed_file() -> TextIO:
    output = io.StringIO()
    output.close()
    return output


@pytest.mark.parametrize("broken", [full_disk, pipe_without_a_reader, closed_file, lambda: None])
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_lines_that_cannot_be_written_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[], TextIO | None],
    log_format: str,
) -> None:
    output = broken()
    monkeypatch.setattr("sys.stderr", output)
    set_up_logging("INFO", log_format)
    metrics = PrometheusMetrics(dropped_lines)

    structlog.get_logger("throughline.test").warning("turn failed", error="model_timeout")
    logging.getLogger("a.library").error("connection reset", exc_info=OSError())

    assert dropped_lines() == 2
    for _ in range(2):
        assert b"throughline_log_lines_dropped_total 2.0" in metrics.render()[0]
    with suppress(OSError):  # what is left in the buffer cannot be written either
        if output is not None:
            output.close()


@pytest.mark.parametrize("broken", [full_disk, pipe_without_a_reader, closed_file, lambda: None])
def test_a_line_for_people_that_nobody_can_read_is_no_error(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[], TextIO | None]
) -> None:
    output = broken()
    monkeypatch.setattr("sys.stdout", output)

    say("Throughline is serving")

    assert sys.stdout is output  # nothing was raised, and nothing replaced
    with suppress(OSError):
        if output is not None:
            output.close()


def test_lines_are_written_again_once_they_can_be() -> None:
    class Filling(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    below = Filling()
    output = DroppingOutput(below)

    output.write("lost\n")
    below.is_full = False
    output.write("kept\n")

    assert (below.getvalue(), output.dropped) == ("kept\n", 1)
