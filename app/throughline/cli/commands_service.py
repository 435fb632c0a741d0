"""The commands `throughline serve` and `worker`, which run until stopped, and `throughline db`."""

from pathlib import Path

import click

from throughline.cli.connection import asynchronous, data_dir_option, health_port_option
from throughline.cli.dependencies import (
    CliDependencies,
    DatabaseStatus,
    LocalOptions,
    ServeOptions,
    WorkerOptions,
)
from throughline.cli.screen import Screen
from throughline.domain.errors import DatabaseUnusable

db = click.Group("db", help="Upgrade the database's schema and show its state.")


@click.command("serve")
@click.option("--host", help="Address to listen on.  [default: setting HOST, 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [default: PORT, 8000]")
@data_dir_option
@click.option(
    "--no-worker", is_flag=True, help="Accept messages without answering them; `throughline worker` does that."
)
@click.pass_obj
def serve(
    dependencies: CliDependencies, host: str | None, port: int | None, data_dir: Path | None, no_worker: bool
) -> None:
    """Serve the REST interface until stopped."""
    dependencies.serve(ServeOptions(host=host, port=port, data_dir=data_dir, no_worker=no_worker))


@click.command("worker")
@click.option("--concurrency", type=click.IntRange(1, 5_000), help="Most open turns.  [default: WORKER_CONCURRENCY]")
@health_port_option
@data_dir_option
@click.pass_obj
def worker(
    dependencies: CliDependencies, concurrency: int | None, health_port: int | None, data_dir: Path | None
) -> None:
    """Run only a worker, until stopped."""
    dependencies.worker(WorkerOptions(concurrency=concurrency, data_dir=data_dir, health_port=health_port))


@db.command("upgrade")
@data_dir_option
@click.pass_obj
@asynchronous
async def upgrade(dependencies: CliDependencies, data_dir: Path | None) -> None:
    """Upgrade the schema to the revision that this version needs."""
    options = LocalOptions(data_dir)
    await dependencies.upgrade_database(options)
    _show(await dependencies.database_status(options))


@db.command("status")
@data_dir_option
@click.pass_obj
@asynchronous
async def show_status(dependencies: CliDependencies, data_dir: Path | None) -> None:
    """Show the schema's revision; fail if an upgrade is due."""
    status = await dependencies.database_status(LocalOptions(data_dir))
    _show(status)
    if not status.is_current:
        raise DatabaseUnusable(
            "The schema does not have the revision that this version needs. Run `throughline db upgrade`."
        )


@db.command("address")
@data_dir_option
@click.pass_obj
@asynchronous
async def address(dependencies: CliDependencies, data_dir: Path | None) -> None:
    """Print the DATABASE_URL for your other programs; it contains the password."""
    click.echo(await dependencies.database_address(LocalOptions(data_dir)))
    Screen().note(
        "the embedded PostgreSQL runs only while a `throughline` process uses it; only this user of this machine "
        "can connect"
    )


def _show(status: DatabaseStatus) -> None:
    screen = Screen()
    screen.say(f"Schema   {status.current or 'empty'}")
    screen.say(f"Needed   {status.head}")
