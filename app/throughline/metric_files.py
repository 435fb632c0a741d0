"""The folder of files in which prometheus_client keeps the metrics of several processes with one port.

The supervisor opens it and merges the files of ended processes. Each process reads all files (`telemetry.py`).
"""

import fcntl
import os
import shutil
import struct
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import structlog
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import mark_process_dead

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable by which prometheus_client is told the folder; it reads the variable when it is imported."""

FOLDER_PREFIX = "throughline-metrics-"
ADDED_UP = ("counter", "histogram", "summary")
"""Kinds of metrics whose values are added up, also those of ended processes. A file's name begins with its kind."""

LOCK = "lock"
_FOLDER_FLAGS, _FILE_FLAGS = os.O_RDONLY | os.O_DIRECTORY, os.O_RDWR | os.O_CREAT
MERGED = "ended"
"""Stands in the names of merged files where others have the id of their process."""

log = structlog.get_logger(__name__)


@contextmanager
def open_folder() -> Generator[Path]:
    """Yield a new folder, and remove it at the end. Folders that no living process holds are removed before."""
    _remove_abandoned()
    while True:
        with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder, ExitStack() as stack:
            with suppress(FileNotFoundError):
                stack.enter_context(held(folder))
            if Path(folder).exists():  # else another supervisor took it for an abandoned one, before it was held
                yield Path(folder)
                return


@contextmanager
def held(folder: Path | str) -> Generator[None]:
    """Hold a lock on the folder: it is in use, also for systemd-tmpfiles (tmpfiles.d, "Age")."""
    with _locked(folder, _FOLDER_FLAGS, fcntl.LOCK_SH):
        yield


@contextmanager
def reading(folder: Path | str) -> Generator[None]:
    """Keep the supervisor from merging files while they are read: values would be missing, or be counted twice."""
    with _locked(Path(folder, LOCK), _FILE_FLAGS, fcntl.LOCK_SH):
        yield


class MetricFiles:
    """The supervisor's view of the files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ended: set[int] = set()

    def note_end(self, pid: int) -> None:
        """Forget the gauges of a process that has ended, and merge its counters into those of others that have.

        While another process reads the files, merging is left to the next call.
        """
        mark_process_dead(pid, str(self._folder))  # type: ignore[no-untyped-call]  # ships none for it
        self._ended.add(pid)
        with suppress(BlockingIOError), _locked(self._folder / LOCK, _FILE_FLAGS, fcntl.LOCK_EX | fcntl.LOCK_NB):
            for kind in ADDED_UP:
                self._merge(kind)
            self._ended.clear()

    def _merge(self, kind: str) -> None:
        ended = [path for pid in self._ended if (path := self._folder / f"{kind}_{pid}.db").exists()]
        if not ended:
            return
        merged = self._folder / f"{kind}_{MERGED}.db"
        new = merged.with_suffix(".new")
        new.write_bytes(_written(_added_up([*([merged] if merged.exists() else []), *ended])))
        new.replace(merged)
        for path in ended:
            path.unlink()


def _added_up(files: Iterable[Path]) -> Mapping[str, float]:
    """Return the sums of the files' values by key, as far as each file can be read."""
    sums: defaultdict[str, float] = defaultdict(float)
    for path in files:
        try:
            for key, value, *_ in MmapedDict.read_all_values_from_file(path):  # type: ignore[no-untyped-call]  # as above
                sums[key] += value
        except struct.error:
            continue  # its process was killed while it began the file
        except (RuntimeError, ValueError) as error:
            log.warning("damaged file of metrics dropped", file=path.name, error=str(error))
    return sums


def _written(values: Mapping[str, float]) -> bytes:
    """Return a file in the format of prometheus_client's MmapedDict.

    It is not written by a MmapedDict: on a full disk a signal would end the process.
    """
    entries = b""
    for key, value in values.items():
        encoded = key.encode()
        padded = encoded + b" " * (8 - (len(encoded) + 4) % 8)
        entries += struct.pack(f"i{len(padded)}sdd", len(encoded), padded, value, 0.0)
    return struct.pack("i4x", 8 + len(entries)) + entries


@contextmanager
def _locked(path: Path | str, flags: int, operation: int) -> Generator[None]:
    """Lock a file or folder. Raises BlockingIOError if the operation has LOCK_NB and the lock is not free."""
    descriptor = os.open(path, flags, mode=0o600)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned() -> None:
    """Remove the folders that supervisors of this user left when they were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):  # it is no folder, or a process holds it
            _remove_unheld(folder)


def _remove_unheld(folder: Path) -> None:
    if folder.lstat().st_uid == os.getuid():
        with _locked(folder, _FOLDER_FLAGS | os.O_NOFOLLOW, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(folder)
