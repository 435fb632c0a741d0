"""The commands `throughline keys create | list | revoke`.

They use the database directly, so that the first key can be created.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import click
from rich.table import Table
from rich.text import Text

from throughline.cli.connection import ServiceTarget, asynchronous, data_dir_option, open_client, target_options
from throughline.cli.dependencies import CliDependencies, LocalOptions
from throughline.cli.printable import joined, moment, one_line, printable
from throughline.cli.screen import Screen
from throughline.domain.errors import NotFound
from throughline.domain.keys import DEFAULT_SCOPES, PREFIX_LENGTH, ApiKey, NewKey, Scope, prefix_of
from throughline.wire.sessions import MemoryOut

MOST_LISTED = 10_000
MOST_FOUND = 50
SHOWN_TEXT = 200


memories = click.Group(
    "memories", help="Store short texts and find them again; prompts do not include them by themselves."
)
id_argument = click.argument("memory_id", metavar="ID", type=click.UUID)


@memories.command("list")
@click.option(
    "--limit", type=click.IntRange(1, MOST_LISTED), default=20, show_default=True, help="Most memories to list."
)
@click.option("--cursor", default="", help="Continue after an earlier list: its cursor.")
@target_options
@asynchronous
async def list_memories(limit: int, cursor: str, target: ServiceTarget) -> None:
    """List memories, newest first."""
    screen = Screen()
    async with open_client(target) as client:
        found, behind = await client.memories(limit=limit, cursor=cursor)
    _draw(screen, found, nothing="no memories yet: add one with `throughline memories add TEXT`")
    if behind:
        screen.note("there are more:", command=f"--cursor {behind}")


@memories.command("add")
@click.argument("text")
@target_options
@asynchronous
async def add(text: str, target: ServiceTarget) -> None:
    """Store TEXT as a memory and print its id."""
    async with open_client(target) as client:
        memory = await client.add_memory(text)
    Screen().say(memory.id)


@memories.command("search")
@click.argument("words", metavar="WORDS")
@click.option(
    "--limit", type=click.IntRange(1, MOST_FOUND), default=10, show_default=True, help="Most memories to find."
)
@target_options
@asynchronous
async def search(words: str, limit: int, target: ServiceTarget) -> None:
    """Search memories; the best matches come first."""
    async with open_client(target) as client:
        found = await client.search_memories(words, limit=limit)
    _draw(Screen(), found, nothing="nothing was found")


@memories.command("show")
@id_argument
@target_options
@asynchronous
async def show(memory_id: UUID, target: ServiceTarget) -> None:
    """Show a memory."""
    screen = Screen()
    async with open_client(target) as client:
        memory = await client.memory(str(memory_id))
    screen.say(f"Memory    {memory.id}")
    screen.say(f"Created   {moment(memory.created_at)}, updated {moment(memory.updated_at)}")
    if memory.metadata:
        screen.say(f"Metadata  {json.dumps(memory.metadata, ensure_ascii=False)}")
    screen.say(memory.text)


@memories.command("edit")
@id_argument
@click.argument("text")
@target_options
@asynchronous
async def edit(memory_id: UUID, text: str, target: ServiceTarget) -> None:
    """Replace a memory's text by TEXT."""
    async with open_client(target) as client:
        await client.change_memory(str(memory_id), text)
    Screen().note(f"memory {memory_id} is changed")


@memories.command("delete")
@id_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@target_options
def delete(memory_id: UUID, yes: bool, target: ServiceTarget) -> None:
    """Delete a memory permanently."""
    if not yes:
        click.confirm(f"Delete memory {memory_id} permanently?", abort=True, err=True)
    asyncio.run(_delete(target, str(memory_id)))


async def _delete(target: ServiceTarget, memory_id: str) -> None:
    async with open_client(target) as client:
        await client.delete_memory(memory_id)
    Screen().note(f"memory {memory_id} is deleted")


def _draw(screen: Screen, found: Sequence[MemoryOut], *, nothing: str) -> None:
    if not found:
        screen.note(nothing)
        return
    lines = (
        Text(f"{printable(memory.id)} {moment(memory.updated_at)} {one_line(memory.text, limit=SHOWN_TEXT)}")
        for memory in found
    )
    screen.draw(joined(lines, width=screen.width))


users = click.Group("users", help="Erase users in the database that this machine is configured for.")


@users.command("erase")
@click.argument("name", metavar="NAME")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@data_dir_option
@click.pass_obj
@asynchronous
async def erase(dependencies: CliDependencies, name: str, *, yes: bool, data_dir: Path | None) -> None:
    """Erase a user with all sessions, memories, keys and links to people in Slack, and print what went."""
    if not yes:
        click.confirm(f"Erase the user {printable(name)} and everything of them? It cannot be undone", abort=True)
    async with dependencies.database(LocalOptions(data_dir)) as database:
        erased = await database.user_erasure.erase(name)
    screen = Screen()
    costs = "stay without the user" if erased.keeps_costs else "are deleted"
    screen.say(f"user {printable(erased.name)} is erased:")
    screen.say(f"  sessions: {erased.sessions} (messages: {erased.messages}, turns: {erased.runs})")
    screen.say(f"  memories: {erased.memories}, keys: {erased.keys}, access tokens: {erased.access_tokens}")
    screen.say(f"  links to people in Slack: {erased.slack_people}")
    screen.say(f"  records of costs: {erased.model_calls}, which {costs}")
    for session_id in erased.shared_sessions:
        screen.note(f"what they wrote in session {session_id} of another owner stays: redact it there")


MOST_OF_NAME = 36  # an id


keys = click.Group("keys", help="Create, list and revoke API keys in the database that this machine is configured for.")


@keys.command("create")
@click.option("--user", default="local", show_default=True, help="User whose data the key can access; created if new.")
@click.option("--name", default="", help="What the key is for.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    default=tuple(scope.value for scope in DEFAULT_SCOPES),
    show_default=True,
    help="May be given several times; act_as lets a back end act for its end users, operate shows what model providers "
    "said about failed calls, the usage of all users, and allows the routes for operators.",
)
@data_dir_option
@click.pass_obj
@asynchronous
async def create(
    dependencies: CliDependencies, user: str, name: str, scopes: tuple[str, ...], data_dir: Path | None
) -> None:
    """Create a key and print it. It is shown only once."""
    async with dependencies.database(LocalOptions(data_dir)) as database:
        created = await database.keys.create(NewKey(user, name, frozenset(Scope(scope) for scope in scopes)))
        is_first = len(await database.keys.list()) == 1
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
    async with dependencies.database(LocalOptions(data_dir)) as database:
        stored = await database.keys.list()
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
    name = prefix_of(key)
    async with dependencies.database(LocalOptions(data_dir)) as database:
        revoked = await database.keys.revoke(name)
    if revoked is None:
        raise NotFound(_unknown(name))
    Screen().note(f"key {name} is revoked; running services refuse it within 5 seconds")


def _unknown(name: str) -> str:
    """Return the error text for a key that was not found. If the name is short, explain what a prefix is.

    The name is cut to MOST_OF_NAME characters.
    """
    text = f"There is no valid key {one_line(name, limit=MOST_OF_NAME)!r}."
    if len(name) < PREFIX_LENGTH:
        text += f" A prefix is the {PREFIX_LENGTH} characters after `tl_`, but this one has {len(name)}."
    return f"{text} `throughline keys list` shows the prefixes."


def _keys_table(stored: list[ApiKey]) -> Table:
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
