"""`throughline sessions context | summaries | restore`: what a chat shows of the context, from outside one."""

import asyncio
from uuid import UUID

import click

from app.cli.bars import draw_context
from app.cli.connection import Target, open_client, target_options
from app.cli.context_views import chosen_version, draw_preview, draw_versions, restored
from app.cli.parts import Parts
from app.cli.screen import Screen


def context_command(parts: Parts) -> click.Command:
    """Return the command `context`."""

    @click.command("context")
    @click.argument("session_id", metavar="ID", type=click.UUID)
    @click.option("--preview", is_flag=True, help="Also show how each message would be shown in the next call.")
    @target_options
    def command(session_id: UUID, preview: bool, target: Target) -> None:
        """Show how full a session's window is, and what the next message will do to it."""
        asyncio.run(_context(parts, target, str(session_id), has_preview=preview))

    return command


def summaries_command(parts: Parts) -> click.Command:
    """Return the command `summaries`."""

    @click.command("summaries")
    @click.argument("session_id", metavar="ID", type=click.UUID)
    @target_options
    def command(session_id: UUID, target: Target) -> None:
        """List the versions of a session's summary, newest first."""
        asyncio.run(_summaries(parts, target, str(session_id)))

    return command


def restore_command(parts: Parts) -> click.Command:
    """Return the command `restore`."""

    @click.command("restore")
    @click.argument("session_id", metavar="ID", type=click.UUID)
    @click.argument("version", metavar="VERSION")
    @target_options
    def command(session_id: UUID, version: str, target: Target) -> None:
        """Go back to VERSION (number or id) of a session's summary; no message is lost by it."""
        asyncio.run(_restore(parts, target, str(session_id), version))

    return command


async def _context(parts: Parts, target: Target, session_id: str, *, has_preview: bool) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        context = await client.context(session_id)
        preview = await client.preview(session_id, "") if has_preview else None
    screen.draw(draw_context(context, width=screen.width))
    if preview is not None:
        screen.draw(draw_preview(preview, width=screen.width))


async def _summaries(parts: Parts, target: Target, session_id: str) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        screen.draw(draw_versions(await client.summaries(session_id), width=screen.width))


async def _restore(parts: Parts, target: Target, session_id: str, argument: str) -> None:
    async with open_client(parts, target) as client:
        version = chosen_version(await client.summaries(session_id), argument)
        Screen().say(restored(version, await client.restore(session_id, version.id)))
