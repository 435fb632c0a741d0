"""Files of the metrics of several processes: merged when processes end, and removed when nobody uses them."""

import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from structlog.testing import capture_logs

from throughline.assembly.serve_processes import end_callback
from throughline.http.accept import ConnectionCounts
from throughline.metric_files import FOLDER_PREFIX, MULTIPROCESS_FOLDER, MetricFiles, held, open_folder, reading
from throughline.telemetry import PrometheusMetrics

COUNT = """
from throughline.telemetry import PrometheusMetrics
metrics = PrometheusMetrics()
for _ in range(3):
    metrics.turn_finished(agent="é" * {length}, status="succeeded", seconds=0.2)
metrics.jobs_taken(is_taking=True)
import os
os.kill(os.getpid(), 9)
"""
TURNS, SECONDS, TAKING = "throughline_turns_total", "throughline_turn_seconds", "throughline_jobs_taking"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which folders of metrics are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def counted(folder: Path, length: int = 1) -> int:
    """Run a process that counts three turns and is killed; return its id."""
    environment = {**os.environ, MULTIPROCESS_FOLDER: str(folder)}
    process = subprocess.Popen([sys.executable, "-c", COUNT.format(length=length)], env=environment)  # ours
    process.wait()
    return process.pid


def shown(folder: Path) -> Mapping[str, float]:
    """Return the sum of each series over its labels, as /metrics adds up all files."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]  # ships none for it
    sums: dict[str, float] = {}
    for sample in (sample for metric in registry.collect() for sample in metric.samples):
        if sample.labels.get("le", "+Inf") == "+Inf":
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def test_counters_of_ended_processes_are_kept_in_one_file_of_each_kind() -> None:
    with open_folder() as folder:
        files, merged = MetricFiles(folder), shown(folder)
        for length in (1, 2, 3, 4, 5, 6, 7, 8, 40_000):
            before, pid = merged, counted(folder, length)
            after = shown(folder)
            files.note_end(pid)
            merged = shown(folder)

            assert after[TURNS] == before.get(TURNS, 0) + 3
            assert {**after, TAKING: 0} == {TAKING: 0, **merged}
            assert merged.get(TAKING) is None

        assert {path.name for path in folder.iterdir()} == {"lock", "counter_ended.db", "histogram_ended.db"}
        assert merged[TURNS] == merged[f"{SECONDS}_count"] == merged[f"{SECONDS}_bucket"] == 27
        assert merged[f"{SECONDS}_sum"] == pytest.approx(5.4)


def test_files_are_merged_later_if_they_are_being_read() -> None:
    with open_folder() as folder:
        files = MetricFiles(folder)
        first, second = counted(folder), counted(folder)

        with reading(folder):
            files.note_end(first)
        assert (folder / f"counter_{first}.db").exists()
        files.note_end(second)

        assert not [*folder.glob("counter_[0-9]*.db")]
        assert shown(folder)[TURNS] == 6


def test_a_file_that_was_only_begun_is_removed() -> None:
    with open_folder() as folder:
        pid = counted(folder)
        MetricFiles(folder).note_end(pid)
        (folder / "counter_1.db").touch()

        MetricFiles(folder).note_end(1)

        assert shown(folder)[TURNS] == 3


def test_a_damaged_file_does_not_keep_others_from_being_merged() -> None:
    with open_folder() as folder:
        files, pid = MetricFiles(folder), counted(folder)
        damaged = folder / "counter_1.db"
        damaged.write_bytes(struct.pack("i4xi", 64, 500) + b"x" * 52)

        with capture_logs() as logs:
            files.note_end(1)
            files.note_end(pid)

        assert shown(folder)[TURNS] == 3
        assert not damaged.exists()
    assert [(line["event"], line["file"]) for line in logs] == [("damaged file of metrics dropped", "counter_1.db")]


def test_what_cannot_be_noted_of_a_process_leaves_its_connections_forgotten(temporary: Path) -> None:
    with ConnectionCounts.make_file() as file:
        ended, own = (ConnectionCounts(file.fileno(), place) for place in (1, 2))
        ended.show(0)
        note = end_callback(MetricFiles(temporary), ConnectionCounts(file.fileno()))
        (temporary / f"gauge_livesum_{os.getpid()}.db").mkdir()  # no file that could be removed

        with capture_logs() as logs:
            note(os.getpid())
        own.show(4)

        assert own.has_most_room()
    assert [line["event"] for line in logs] == ["metrics of an ended process not merged"]


def test_a_new_folder_that_another_start_removes_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = tempfile.mkdtemp, list[str]()

    def mkdtemp(*arguments: Any, **further: Any) -> str:  # noqa: ANN401  # as tempfile has it
        folder = str(real(*arguments, **further))
        made.append(folder)
        if len(made) == 1:
            with open_folder():  # the one of another supervisor, which starts before this one holds its own
                pass
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)

    with open_folder() as folder:
        assert folder.parent == temporary
        assert [str(path) for path in temporary.iterdir()] == [str(folder)] == [made[-1]]
    assert len(made) == 3


def test_supervisors_with_one_temporary_folder_leave_each_other_s_alone(temporary: Path) -> None:
    with open_folder() as first, open_folder() as second:
        assert {first, second} == {*temporary.iterdir()}


def test_each_process_shows_what_ended_ones_counted() -> None:
    with open_folder() as folder:
        MetricFiles(folder).note_end(counted(folder))

        assert (
            b'throughline_turns_total{agent="\xc3\xa9",status="succeeded"} 3.0'
            in PrometheusMetrics(shared_folder=str(folder)).render()[0]
        )


def test_a_folder_that_nobody_holds_is_removed_by_the_next_start(temporary: Path) -> None:
    abandoned, used, other = (temporary / f"{prefix}x" for prefix in (FOLDER_PREFIX, f"{FOLDER_PREFIX}u", "other-"))
    for folder in (abandoned, used, other):
        folder.mkdir()
        (folder / "counter_1.db").touch()
    (temporary / f"{FOLDER_PREFIX}link").symlink_to(other)

    with held(used), open_folder() as new:
        assert not abandoned.exists()
        assert len([*new.parent.glob(f"{FOLDER_PREFIX}*")]) == 3
        assert {path.name for path in used.iterdir()} == {path.name for path in other.iterdir()} == {"counter_1.db"}

    assert not new.exists()
