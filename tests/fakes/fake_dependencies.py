"""The parts of a command line: calls of programs are noted, the service is where a test serves one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner, Result

from fakes.pooler import urls_of
from throughline.assembly.front_ends import commands, storages
from throughline.cli.dependencies import (
    CliDependencies,
    DatabaseStatus,
    FrontEndOptions,
    LocalOptions,
    ServeOptions,
    WorkerOptions,
)
from throughline.cli.root import command_line
from throughline.cli.screen import standard_input_lines
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.model_window import ModelCheck
from throughline.domain.service_status import Line, ServiceStatus

IDLE_SERVICE = ServiceStatus("0019", processes=(), queued=Line(0, None), held=(), jobs=(), slack=None)


@dataclass
class FakeWorld:
    """What stands behind the commands, and what they did to it.

    The service listens at `socket_path`, keys lie in the database at `database_url`: a test names those it needs.
    """

    socket_path: Path | None = None
    database_url: str = ""
    revision: str | None = None
    served: list[ServeOptions] = field(default_factory=list)
    worked: list[WorkerOptions] = field(default_factory=list)
    alone: list[FrontEndOptions] = field(default_factory=list)
    opened: list[LocalOptions] = field(default_factory=list)
    status: ServiceStatus = IDLE_SERVICE
    check: ModelCheck | None = None

    def run(self, *arguments: str, typed: str = "") -> Result:
        """Run the command line with these arguments and this standard input."""
        return CliRunner().invoke(
            command_line(commands()), arguments, input=typed, prog_name="throughline", obj=self.dependencies()
        )

    def dependencies(self) -> CliDependencies:
        return CliDependencies(
            serve=self.served.append,
            worker=self.worked.append,
            front_end=self.alone.append,
            open_local_service=self._open,
            standard_input_lines=standard_input_lines,
            database=self._open_database,
            upgrade_database=self._upgrade,
            database_status=self._status,
            database_address=self._address,
            check_model=self._check_model,
            service_status=self._service_status,
        )

    @asynccontextmanager
    async def _open(self, options: LocalOptions) -> AsyncIterator[Path]:
        self.opened.append(options)
        assert self.socket_path is not None, "this test serves nothing"
        yield self.socket_path

    @asynccontextmanager
    async def _open_database(self, options: LocalOptions) -> AsyncIterator[Database]:
        self.opened.append(options)
        # Not opened: nothing listens or is checked.
        database = Database(DatabaseConfig(**urls_of(self.database_url), front_ends=storages()))
        try:
            yield database
        finally:
            await database.close()

    async def _upgrade(self, _options: LocalOptions) -> None:
        self.revision = "0001"

    async def _address(self, options: LocalOptions) -> str:
        self.opened.append(options)
        return "postgresql://host/name"

    async def _status(self, _options: LocalOptions) -> DatabaseStatus:
        return DatabaseStatus(self.revision, "0001", is_current=self.revision == "0001")

    async def _check_model(self, _agent: str) -> ModelCheck:
        assert self.check is not None, "this test checks no model"
        return self.check

    async def _service_status(self, options: LocalOptions) -> ServiceStatus:
        self.opened.append(options)
        return self.status
