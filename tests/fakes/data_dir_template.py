"""Copies of a data directory in which an embedded server was made, migrated and stopped.

That takes more than a second of processor time, a copy a tenth of it.
"""

import asyncio
import subprocess
from functools import cache
from pathlib import Path

from fakes.run_folder import run_folder, shared, until_exit
from fakes.shared_server import in_its_own_loop
from throughline.db.connection.migrations import upgrade
from throughline.postgres_server import EmbeddedConfig, EmbeddedServer


async def copy_data_dir(data_dir: Path) -> None:
    """Make the folder, which is not there yet."""
    await asyncio.to_thread(_copy_to, data_dir)


def _copy_to(data_dir: Path) -> None:
    """Copy with the owners, as root's server runs as somebody else."""
    subprocess.run(["cp", "-Rp", _made(), data_dir], check=True)


@cache
def _made() -> str:
    """Return the folder to copy, one for all processes of a run, which the first to ask makes."""
    return until_exit(shared("embedded", lambda: in_its_own_loop(_make)))


async def _make() -> str:
    data_dir = run_folder() / "embedded-data"
    server = await EmbeddedServer.start(EmbeddedConfig(data_dir))
    await upgrade(server.url)
    await server.stop()
    return str(data_dir)
