"""The parts of a command line whose service is the fake one and whose keys lie in memory."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from click.testing import CliRunner, Result

from app.cli import root
from app.cli.lines import standard_input_lines
from app.cli.parts import DatabaseStatus, LocalOptions, Parts, ServeOptions, SlackOptions, SlackUnlink, WorkerOptions
from app.domain.ids import KeyId, UserId
from app.domain.keys import CreatedKey, NewKey, StoredKey
from app.domain.service_status import Line, ServiceStatus
from fakes.fake_service import FakeService, serving

IDLE_SERVICE = ServiceStatus("0019", processes=(), queued=Line(0, None), held=(), jobs=(), slack=None)


@dataclass
class FakeKeys:
    """Keys in memory."""

    stored: list[StoredKey] = field(default_factory=list)
    revoked: list[str] = field(default_factory=list)

    async def create(self, new: NewKey) -> CreatedKey:
        key_id, prefix = KeyId(UUID(int=len(self.stored))), f"{len(self.stored):08}"
        self.stored.append(
            StoredKey(
                id=key_id,
                user_id=UserId(UUID(int=1)),
                user_name=new.user_name,
                name=new.name,
                prefix=prefix,
                scopes=new.scopes,
                created_at=datetime(2026, 5, 4, tzinfo=UTC),
                last_used_at=None,
                revoked_at=None,
            )
        )
        return CreatedKey(key_id, f"tl_{prefix}_secret", prefix)

    async def list(self) -> Sequence[StoredKey]:
        return tuple(self.stored)

    async def revoke(self, prefix_or_id: str) -> bool:
        self.revoked.append(prefix_or_id)
        return any(key.prefix == prefix_or_id for key in self.stored)


@dataclass
class FakeWorld:
    """What stands behind the commands, and what they did to it."""

    service: FakeService = field(default_factory=FakeService)
    socket_path: Path | None = None
    keys: FakeKeys = field(default_factory=FakeKeys)
    revision: str | None = None
    served: list[ServeOptions] = field(default_factory=list)
    worked: list[WorkerOptions] = field(default_factory=list)
    in_slack: list[SlackOptions] = field(default_factory=list)
    unlinked: list[SlackUnlink] = field(default_factory=list)
    opened: list[LocalOptions] = field(default_factory=list)
    status: ServiceStatus = IDLE_SERVICE

    def run(self, *arguments: str, typed: str = "") -> Result:
        """Run the command line with these arguments and this standard input."""
        return CliRunner().invoke(root.throughline, arguments, input=typed, prog_name="throughline", obj=self.parts())

    def parts(self) -> Parts:
        return Parts(
            serve=self.served.append,
            worker=self.worked.append,
            slack=self.in_slack.append,
            slack_manifest=lambda name, url: f"manifest of {name} at {url or 'no address'}",
            slack_link_code=self._link_code,
            slack_unlink=self._unlink,
            open_local_service=self._open,
            standard_input_lines=standard_input_lines,
            keys=self._open_keys,
            upgrade_database=self._upgrade,
            database_status=self._status,
            database_address=self._address,
            service_status=self._service_status,
        )

    @asynccontextmanager
    async def _open(self, options: LocalOptions) -> AsyncIterator[Path]:
        self.opened.append(options)
        if self.socket_path is not None:
            yield self.socket_path
            return
        with tempfile.TemporaryDirectory() as folder:
            async with serving(self.service, Path(folder) / "s") as path:
                yield path

    @asynccontextmanager
    async def _open_keys(self, _options: LocalOptions) -> AsyncIterator[FakeKeys]:
        yield self.keys

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

    async def _service_status(self, options: LocalOptions) -> ServiceStatus:
        self.opened.append(options)
        return self.status
