"""Configuration of the embedded server."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """The data directory and the start timeout of the embedded server.

    `data_dir` None means the user's data directory, for root `/var/lib/throughline`. `start_timeout_seconds` includes
    recovery after a crash. `may_create_databases` applies only when the data directory is first created; test suites
    use it.
    """

    data_dir: Path | None = None
    start_timeout_seconds: float = 60.0
    may_create_databases: bool = False
