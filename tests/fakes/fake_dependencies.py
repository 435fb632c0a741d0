"""The parts of a command line: calls of programs are noted, the service is where a test serves one."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner, Result

from fakes.pooler import urls_of
from throughline.cli import root
from throughline.cli.dependencies import (
    CliDependencies,
    DatabaseStatus,
    KeyAdmin,
    LocalOptions,
    ServeOptions,
    SlackOptions,
    SlackUnlink,
    WorkerOptions,
)
from throughline.cli.screen import standard_input_lines
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.keys import ErasedUser
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
    in_slack: list[SlackOptions] = field(default_factory=list)
    unlinked: list[SlackUnlink] = field(default_factory=list)
    opened: list[LocalOptions] = field(default_factory=list)
    status: ServiceStatus = IDLE_SERVICE
    check: ModelCheck | None = None

    def run(self, *arguments: str, typed: str = "") -> Result:
        """Run the command line with these arguments and this standard input."""
        return CliRunner().invoke(
            root.throughline, arguments, input=typed, prog_name="throughline", obj=self.dependencies()
        )

    def dependencies(self) -> CliDependencies:
        return CliDependencies(
            serve=self.served.append,
            worker=self.worked.append,
            slack=self.in_slack.append,
            slack_manifest=lambda name, url: f"manifest of {name} at {url or 'no address'}",
            slack_link_code=self._link_code,
            erase_user=self._erase_user,
            slack_unlink=self._unlink,
            open_local_service=self._open,
            standard_input_lines=standard_input_lines,
            keys=self._open_keys,
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
    async def _open_keys(self, _options: LocalOptions) -> AsyncIterator[KeyAdmin]:
        async with self._open_database() as database:
            yield database.keys

    @asynccontextmanager
    async def _open_database(self) -> AsyncIterator[Database]:
        database = Database(DatabaseConfig(**urls_of(self.database_url)))  # not opened: nothing listens or is checked
        try:
            yield database
        finally:
            await database.close()

    async def _erase_user(self, _options: LocalOptions, name: str) -> ErasedUser:
        async with self._open_database() as database:
            return await database.user_erasure.erase(name)

    async def _link_code(self, options: LocalOptions, user: str) -> str:
        self.opened.append(options)
        return f"code-of-{user}"

    async def _unlink(self, options: LocalOptions, whom: SlackUnlink) -> Sequence[str]:
        self.opened.append(options)
        self.unlinked.append(whom)
        return ("T0DOUBLE1:U0ANNA001", "T0DOUBLE1:U0BERT001")

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
