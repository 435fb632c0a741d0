"""Runs migrations over the connection that db/connection/migrations.py hands in; `-x url=…` serves the alembic command.

Logging is the service's own: nothing is configured here.
"""

import asyncio

from sqlalchemy import Connection

from alembic import context
from throughline.assembly.front_ends import import_tables
from throughline.db.connection.migrations import locked_connection
from throughline.db.tables import METADATA


def run_migrations(connection: Connection) -> None:
    """Bring the schema to the wanted revision, one transaction for each migration."""
    import_tables()
    context.configure(connection=connection, target_metadata=METADATA, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def run_with_own_connection(url: str) -> None:
    """Run under the lock on a connection of our own."""
    async with locked_connection(url) as connection:
        await connection.run_sync(run_migrations)


def main() -> None:
    """Take the connection that was handed in, else connect to `-x url=…`."""
    connection = context.config.attributes.get("connection")
    if connection is not None:
        run_migrations(connection)
        return
    url = context.get_x_argument(as_dictionary=True).get("url")
    if url is None:
        raise SystemExit(
            "Name the database: `alembic -x url=postgresql://… upgrade head`, or `throughline db upgrade`."
        )
    asyncio.run(run_with_own_connection(url))


main()
