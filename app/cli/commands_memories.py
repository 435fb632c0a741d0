"""`throughline memories list | add | search | show | edit | delete`: short texts a user keeps, apart from sessions."""

import asyncio
import json
from uuid import UUID

import click
from rich.text import Text

from app.cli.connection import Target, open_client, target_options
from app.cli.parts import Parts
from app.cli.printable import joined, moment, one_line, printable
from app.cli.screen import Screen
from app.wire.memories import MemoryOut

MOST_LISTED = 10_000
MOST_FOUND = 50
SHOWN_TEXT = 200


def memories_group(parts: Parts) -> click.Group:
    """Return the group `memories`."""
    group = click.Group("memories", help="Keep short texts and find them again; no prompt holds them by itself.")
    for build in (_list_command, _add_command, _search_command, _show_command, _edit_command, _delete_command):
        group.add_command(build(parts))
    return group


def _list_command(parts: Parts) -> click.Command:
    @click.command("list")
    @click.option("--limit", type=click.IntRange(1, MOST_LISTED), default=20, show_default=True)
    @click.option("--cursor", default="", help="Go on behind an earlier list.")
    @target_options
    def command(limit: int, cursor: str, target: Target) -> None:
        """List memories, newest first."""
        asyncio.run(_list(parts, target, limit=limit, cursor=cursor))

    return command


def _add_command(parts: Parts) -> click.Command:
    @click.command("add")
    @click.argument("text")
    @target_options
    def command(text: str, target: Target) -> None:
        """Keep TEXT; prints the id of the memory."""
        asyncio.run(_add(parts, target, text))

    return command


def _search_command(parts: Parts) -> click.Command:
    @click.command("search")
    @click.argument("words", metavar="WORDS")
    @click.option("--limit", type=click.IntRange(1, MOST_FOUND), default=10, show_default=True)
    @target_options
    def command(words: str, limit: int, target: Target) -> None:
        """Find memories, the best matches first."""
        asyncio.run(_search(parts, target, words, limit=limit))

    return command


def _show_command(parts: Parts) -> click.Command:
    @click.command("show")
    @click.argument("memory_id", metavar="ID", type=click.UUID)
    @target_options
    def command(memory_id: UUID, target: Target) -> None:
        """Show a memory."""
        asyncio.run(_show(parts, target, str(memory_id)))

    return command


def _edit_command(parts: Parts) -> click.Command:
    @click.command("edit")
    @click.argument("memory_id", metavar="ID", type=click.UUID)
    @click.argument("text")
    @target_options
    def command(memory_id: UUID, text: str, target: Target) -> None:
        """Put TEXT in the place of a memory's text."""
        asyncio.run(_edit(parts, target, str(memory_id), text))

    return command


def _delete_command(parts: Parts) -> click.Command:
    @click.command("delete")
    @click.argument("memory_id", metavar="ID", type=click.UUID)
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @target_options
    def command(memory_id: UUID, yes: bool, target: Target) -> None:
        """Delete a memory, for ever."""
        if not yes:
            click.confirm(f"Delete memory {memory_id}, for ever?", abort=True, err=True)
        asyncio.run(_delete(parts, target, str(memory_id)))

    return command


async def _list(parts: Parts, target: Target, *, limit: int, cursor: str) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        memories, behind = await client.memories(limit=limit, cursor=cursor)
    _draw(screen, memories, nothing="no memories yet: `throughline memories add TEXT` keeps one")
    if behind:
        screen.note("there are more:", command=f"--cursor {behind}")


async def _add(parts: Parts, target: Target, text: str) -> None:
    async with open_client(parts, target) as client:
        memory = await client.add_memory(text)
    Screen().say(memory.id)


async def _search(parts: Parts, target: Target, words: str, *, limit: int) -> None:
    async with open_client(parts, target) as client:
        memories = await client.search_memories(words, limit=limit)
    _draw(Screen(), list(memories), nothing="nothing was found")


async def _show(parts: Parts, target: Target, memory_id: str) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        memory = await client.memory(memory_id)
    screen.say(f"Memory    {memory.id}")
    screen.say(f"Created   {moment(memory.created_at)}, updated {moment(memory.updated_at)}")
    if memory.metadata:
        screen.say(f"Metadata  {json.dumps(memory.metadata, ensure_ascii=False)}")
    screen.say(memory.text)


async def _edit(parts: Parts, target: Target, memory_id: str, text: str) -> None:
    async with open_client(parts, target) as client:
        await client.change_memory(memory_id, text)
    Screen().note(f"memory {memory_id} is changed")


async def _delete(parts: Parts, target: Target, memory_id: str) -> None:
    async with open_client(parts, target) as client:
        await client.delete_memory(memory_id)
    Screen().note(f"memory {memory_id} is deleted")


def _draw(screen: Screen, memories: list[MemoryOut], *, nothing: str) -> None:
    if not memories:
        screen.note(nothing)
        return
    lines = (
        Text(f"{printable(memory.id)} {moment(memory.updated_at)} {one_line(memory.text, limit=SHOWN_TEXT)}")
        for memory in memories
    )
    screen.draw(joined(lines, width=screen.width))
