"""The grounds of a scenario: an embedded PostgreSQL, the model double, agents, and fresh databases."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.programs import Start
from fakes import programs
from fakes.pooler import environment_of
from fakes.service_process import fork, free_port, kill_programs_using
from fakes.shared_server import new_migrated_database, with_database
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

LEASE_SECONDS = 2.0
"""The shortest the settings allow; heartbeats come three times as often."""

GRACE_SECONDS = 5.0
"""After its lease, and so long, a session whose worker died must have gone on."""

TIMEOUT_SECONDS = LEASE_SECONDS + GRACE_SECONDS

MODEL = "double-128k-cl100k"
AGENTS = Path(__file__).parent / "agents"


@dataclass(frozen=True, slots=True)
class Grounds:
    """Where a scenario takes place. `database_url` is empty where the service keeps the embedded server itself."""

    folder: Path
    double_url: str
    calls_log: Path
    database_url: str
    data_dir: Path

    @property
    def notes(self) -> Path:
        """What the tools have noted."""
        return self.folder / "notes"

    def start(self, *arguments: str, **settings: str) -> Start:
        """Return how a process of the service is started here."""
        where = dict(environment_of(self.database_url)) if self.database_url else {"DATA_DIR": str(self.data_dir)}
        environment = {
            **where,
            "DEFAULT_LLM": f"openai:{MODEL}",
            "DEFAULT_LLM_BASE_URL": self.double_url,
            "OPENAI_API_KEY": "chaos",
            "AGENTS_DIR": str(AGENTS),
            "CHAOS_NOTES": str(self.notes),
            "LEASE_SECONDS": f"{LEASE_SECONDS:g}",
            "LOG_LEVEL": "INFO",
            "LOG_FORMAT": "json",
            **settings,
        }
        return Start(self.folder, environment, arguments)


@asynccontextmanager
async def open_grounds(*, own_database: bool = True, summary_seconds: float = 0.0) -> AsyncGenerator[Grounds]:
    """Make the grounds and take everything away at the end.

    With `own_database` we keep the server, in which the service has a database of its own; without it the service
    finds a data directory and keeps the server itself. The model takes `summary_seconds` for a summary.
    """
    with tempfile.TemporaryDirectory(prefix="tlc-", ignore_cleanup_errors=True) as name:
        folder = _open_to_servers(Path(name))
        data_dir = folder / "data"
        server = await EmbeddedServer.start(EmbeddedConfig(data_dir=data_dir, may_create_databases=True))
        try:
            url = await new_database(server.url) if own_database else ""
            async with lay_out(folder, database_url=url, data_dir=data_dir, summary_seconds=summary_seconds) as grounds:
                yield grounds
        finally:
            await kill_programs_using(name)
            await server.stop()


def _open_to_servers(folder: Path) -> Path:
    """Let the database server's own account pass through the folder."""
    folder.chmod(0o711)
    return folder


@asynccontextmanager
async def lay_out(
    folder: Path, *, database_url: str, data_dir: Path, summary_seconds: float = 0.0
) -> AsyncGenerator[Grounds]:
    """Add the model to a database that is there."""
    calls_log = folder / "calls.jsonl"
    async with run_double(folder, calls_log, summary_seconds) as double_url:
        yield Grounds(folder, double_url, calls_log, database_url, data_dir)


@asynccontextmanager
async def run_double(folder: Path, calls_log: Path, summary_seconds: float = 0.0) -> AsyncGenerator[str]:
    """Run the model double; yields its base URL."""
    port = free_port()
    arguments = ("--port", str(port), "--log", str(calls_log), "--summary-seconds", f"{summary_seconds:g}")
    process = await fork(programs.Start(folder, {}, arguments, folder / "double.log", "chaos.model_double"))
    try:
        await _until_listening(port)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        await process.wait()


async def new_database(server_url: str) -> str:
    """Make a database with our schema; return its address."""
    return with_database(server_url, await new_migrated_database(server_url, "chaos"))


async def _until_listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return
