"""The commands `throughline keys create | list | revoke`.

They use the database directly, so that the first key can be created.
"""

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from throughline.cli.connection import asynchronous, data_dir_option
from throughline.cli.dependencies import CliDependencies, LocalOptions
from throughline.cli.printable import moment, one_line, printable
from throughline.cli.screen import Screen
from throughline.domain.errors import NotFound
from throughline.domain.keys import PREFIX_LENGTH, NewKey, Scope, StoredKey

MOST_OF_NAME = 36  # an id
DEFAULT_SCOPES = (Scope.READ.value, Scope.WRITE.value)


keys = click.Group("keys", help="Create, list and revoke API keys in the database that this machine is configured for.")


@keys.command("create")
@click.option("--user", default="local", show_default=True, help="User whose data the key can access; created if new.")
@click.option("--name", default="", help="What the key is for.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    default=DEFAULT_SCOPES,
    show_default=True,
    help="May be given several times; act_as lets a back end act for its end users, operate shows what model providers "
    "said about failed calls, and the usage of all users.",
)
@data_dir_option
@click.pass_obj
@asynchronous
async def create(
    dependencies: CliDependencies, user: str, name: str, scopes: tuple[str, ...], data_dir: Path | None
) -> None:
    """Create a key and print it. It is shown only once."""
    async with dependencies.keys(LocalOptions(data_dir)) as admin:
        created = await admin.create(NewKey(user, name, frozenset(Scope(scope) for scope in scopes)))
        is_first = len(await admin.list()) == 1
    click.echo(created.secret)
    screen = Screen()
    screen.note(f"store it now: it is not shown again. `throughline keys revoke {created.prefix}` revokes it.")
    if is_first:
        screen.note("this is the first key: the service requires a key after its next start. Restart running services.")


@keys.command("list")
@data_dir_option
@click.pass_obj
@asynchronous
async def list_keys(dependencies: CliDependencies, data_dir: Path | None) -> None:
    """List all keys, without their secrets."""
    async with dependencies.keys(LocalOptions(data_dir)) as admin:
        stored = await admin.list()
    screen = Screen()
    if stored:
        screen.draw(_keys_table(list(stored)))
    else:
        screen.note("no keys yet: create one with `throughline keys create`")


@keys.command("revoke")
@click.argument("key", metavar="PREFIX|ID")
@data_dir_option
@click.pass_obj
@asynchronous
async def revoke(dependencies: CliDependencies, key: str, data_dir: Path | None) -> None:
    """Revoke a key; running services refuse it within 5 seconds.

    PREFIX is the eight characters after `tl_`, as `keys list` shows them.
    """
    name = _prefix_of(key)
    async with dependencies.keys(LocalOptions(data_dir)) as admin:
        was_revoked = await admin.revoke(name)
    if not was_revoked:
        raise NotFound(_unknown(name))
    Screen().note(f"key {name} is revoked; running services refuse it within 5 seconds")


def _prefix_of(key: str) -> str:
    """Return the prefix of a key, which may be given whole (`tl_<prefix>_<secret>`). An id stays unchanged."""
    return key.removeprefix("tl_").partition("_")[0]


def _unknown(name: str) -> str:
    """Return the error text for a key that was not found. If the name is short, explain what a prefix is.

    The name is cut to MOST_OF_NAME characters.
    """
    text = f"There is no valid key {one_line(name, limit=MOST_OF_NAME)!r}."
    if len(name) < PREFIX_LENGTH:
        text += f" A prefix is the {PREFIX_LENGTH} characters after `tl_`, but this one has {len(name)}."
    return f"{text} `throughline keys list` shows the prefixes."


def _keys_table(stored: list[StoredKey]) -> Table:
    table = Table("Prefix", "User", "Name", "Scopes", "Last used", "Revoked", box=None, pad_edge=False)
    for key in stored:
        cells = (
            key.prefix,
            key.user_name,
            key.name,
            " ".join(sorted(key.scopes)),
            moment(key.last_used_at),
            moment(key.revoked_at),
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
