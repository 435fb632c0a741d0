"""What the embedded server is told from outside."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """Where the data lives and how long a start waits.

    `data_dir` None means the user's data directory, for root `/var/lib/throughline`. `start_timeout_seconds` includes
    the recovery after a crash. `may_create_databases` counts only when the data directory is first made: test suites
    want it.
    """

    data_dir: Path | None = None
    start_timeout_seconds: float = 60.0
    may_create_databases: bool = False
