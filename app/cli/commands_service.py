"""`throughline serve`, `throughline worker` and `throughline db upgrade | status`."""

import asyncio
from pathlib import Path

import click

from app.cli.connection import data_dir_option
from app.cli.parts import DatabaseStatus, LocalOptions, Parts, ServeOptions, WorkerOptions
from app.cli.screen import Screen
from app.domain.errors import DatabaseUnusable


def serve_command(parts: Parts) -> click.Command:
    """Return the command `serve`."""

    @click.command("serve")
    @click.option("--host", help="Address to listen on.  [default: setting HOST, 127.0.0.1]")
    @click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [default: PORT, 8000]")
    @data_dir_option
    @click.option("--no-worker", is_flag=True, help="Only take messages; `throughline worker` answers them.")
    def command(host: str | None, port: int | None, data_dir: Path | None, no_worker: bool) -> None:
        """Serve the REST interface until stopped."""
        parts.serve(ServeOptions(host=host, port=port, data_dir=data_dir, no_worker=no_worker))

    return command


def worker_command(parts: Parts) -> click.Command:
    """Return the command `worker`."""

    @click.command("worker")
    @click.option("--concurrency", type=click.IntRange(1, 5_000), help="Open turns.  [default: WORKER_CONCURRENCY]")
    @data_dir_option
    def command(concurrency: int | None, data_dir: Path | None) -> None:
        """Run a worker alone until stopped."""
        parts.worker(WorkerOptions(concurrency=concurrency, data_dir=data_dir))

    return command


def db_group(parts: Parts) -> click.Group:
    """Return the group `db`."""
    group = click.Group("db", help="Look after the database's schema.")
    group.add_command(_upgrade_command(parts))
    group.add_command(_status_command(parts))
    return group


def _upgrade_command(parts: Parts) -> click.Command:
    @click.command("upgrade")
    @data_dir_option
    def command(data_dir: Path | None) -> None:
        """Bring the schema to what this version needs."""
        asyncio.run(_upgrade(parts, LocalOptions(data_dir)))

    return command


def _status_command(parts: Parts) -> click.Command:
    @click.command("status")
    @data_dir_option
    def command(data_dir: Path | None) -> None:
        """Show the schema's revision; fails where an upgrade is due."""
        asyncio.run(_status(parts, LocalOptions(data_dir)))

    return command


async def _upgrade(parts: Parts, options: LocalOptions) -> None:
    await parts.upgrade_database(options)
    _show(await parts.database_status(options))


async def _status(parts: Parts, options: LocalOptions) -> None:
    status = await parts.database_status(options)
    _show(status)
    if not status.is_current:
        raise DatabaseUnusable("The schema is not what this version needs. Run `throughline db upgrade`.")


def _show(status: DatabaseStatus) -> None:
    screen = Screen()
    screen.say(f"Schema   {status.current or 'empty'}")
    screen.say(f"Needed   {status.head}")
