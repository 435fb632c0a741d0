"""One process's share of the embedded server: attach, revive, release. Blocking; `server` wraps it for asyncio.

Two locks order the processes. `start.lock` is held while the server is started or stopped, `users.lock` is shared by
all processes that use it. A killed process loses its locks and leaves the server running; the next process attaches to
it.
"""

from pathlib import Path

import psutil
import structlog

from throughline.domain.errors import DatabaseUnusable
from throughline.postgres_server.claim_data_dir import claim_data_dir, running_installation
from throughline.postgres_server.cluster import check_version, make_cluster_if_missing, set_password
from throughline.postgres_server.config import EmbeddedConfig
from throughline.postgres_server.installation import (
    Installation,
    prepare_installation,
    provide_socket_dir,
    remove_short_socket_dir,
)
from throughline.postgres_server.layout import Layout, choose_data_dir, make_home, read_or_make_password
from throughline.postgres_server.lock import FileLock, exclusively
from throughline.postgres_server.process import is_alive
from throughline.postgres_server.server_log import bound_log
from throughline.postgres_server.start_server import find_usable_server, start_server, stop_server, wait_until_ready

_log = structlog.get_logger()


class SharedServer:
    """A share of the server, held from `attach` to `release`. Thread-safe."""

    def __init__(self, config: EmbeddedConfig, layout: Layout, installation: Installation) -> None:
        """Store the dependencies; use `attach` to create a share."""
        self._config = config
        self._layout = layout
        self._installation = installation
        self._users = FileLock(layout.users_lock)
        self._process: psutil.Process | None = None
        self._is_released = False
        self.password = ""
        self.socket_dir = Path()

    @classmethod
    def attach(cls, config: EmbeddedConfig) -> "SharedServer":
        """Take a share of the server, creating and starting it if necessary.

        Raises:
            DatabaseUnusable: the data directory or the programs cannot be used, or the default directory belongs to
                another installation; the text says why.
            DatabaseUnavailable: the server is not ready in time, or another process holds the start lock.
        """
        data_dir = choose_data_dir(config.data_dir)
        try:
            layout = make_home(data_dir)
            with exclusively(layout.start_lock, timeout_seconds=config.start_timeout_seconds):
                if config.data_dir is None:
                    claim_data_dir(layout, running_installation())
                share = cls(config, layout, prepare_installation(layout))
                share._attach_or_close()
                return share
        except OSError as error:
            raise DatabaseUnusable(
                f"The data directory {data_dir} cannot be used: {error.strerror} ({error.filename}). Make it writable, "
                "free disk space, or choose another one with --data-dir or DATA_DIR."
            ) from error

    def revive(self) -> bool:
        """Restart the server if it is dead, and return whether it was. A released share restarts nothing.

        Raises:
            DatabaseUnusable: the server cannot be started any more.
            DatabaseUnavailable: the server is not ready in time, or another process holds the start lock.
        """
        if self._process and is_alive(self._process):
            bound_log(self._layout.log_file)
            return False
        with exclusively(self._layout.start_lock, timeout_seconds=self._config.start_timeout_seconds):
            if self._is_released:
                return False
            self._ensure_running()
        return True

    def release(self) -> None:
        """Release this process's share; the last process stops the server."""
        if self._is_released:
            return
        # Longer than a stop, and longer than another process's start.
        with exclusively(self._layout.start_lock, timeout_seconds=self._config.start_timeout_seconds + 60):
            self._is_released = True
            try:
                if self._users.try_exclusive():
                    stop_server(self._installation)
                    remove_short_socket_dir(self._layout)
            finally:
                self._users.close()

    def _attach_or_close(self) -> None:
        try:
            self._users.share()
            self._prepare_data()
            self._ensure_running()
        except BaseException:
            self._users.close()
            raise

    def _prepare_data(self) -> None:
        has_password = self._layout.password_file.exists()
        has_cluster = self._layout.cluster.exists()
        self.password = read_or_make_password(self._layout)
        make_cluster_if_missing(
            self._installation, password=self.password, may_create_databases=self._config.may_create_databases
        )
        check_version(self._installation)
        if has_cluster and not has_password:
            stop_server(self._installation)
            set_password(self._installation, self.password)

    def _ensure_running(self) -> None:
        self.socket_dir = provide_socket_dir(self._installation)
        process = find_usable_server(self._installation)
        if process is None:
            process = start_server(self._installation)
            _log.info("embedded postgresql started", folder=str(self._layout.home), pid=process.pid)
        wait_until_ready(self._installation, process, timeout_seconds=self._config.start_timeout_seconds)
        self._process = process
