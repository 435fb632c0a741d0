"""The commands `throughline memories …`: short texts that a user stores, independent of sessions."""

import asyncio
import json
from collections.abc import Sequence
from uuid import UUID

import click
from rich.text import Text

from throughline.cli.connection import Target, asynchronous, open_client, target_options
from throughline.cli.printable import joined, moment, one_line, printable
from throughline.cli.screen import Screen
from throughline.wire.memories import MemoryOut

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
async def list_memories(limit: int, cursor: str, target: Target) -> None:
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
async def add(text: str, target: Target) -> None:
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
async def search(words: str, limit: int, target: Target) -> None:
    """Search memories; the best matches come first."""
    async with open_client(target) as client:
        found = await client.search_memories(words, limit=limit)
    _draw(Screen(), found, nothing="nothing was found")


@memories.command("show")
@id_argument
@target_options
@asynchronous
async def show(memory_id: UUID, target: Target) -> None:
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
async def edit(memory_id: UUID, text: str, target: Target) -> None:
    """Replace a memory's text by TEXT."""
    async with open_client(target) as client:
        await client.change_memory(str(memory_id), text)
    Screen().note(f"memory {memory_id} is changed")


@memories.command("delete")
@id_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@target_options
def delete(memory_id: UUID, yes: bool, target: Target) -> None:
    """Delete a memory permanently."""
    if not yes:
        click.confirm(f"Delete memory {memory_id} permanently?", abort=True, err=True)
    asyncio.run(_delete(target, str(memory_id)))


async def _delete(target: Target, memory_id: str) -> None:
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
