"""`throughline sessions list | show | export | delete`."""

import asyncio
from pathlib import Path
from uuid import UUID

import click
from rich.table import Table
from rich.text import Text

from app.cli.bars import draw_context
from app.cli.chat_state import in_history
from app.cli.client import SessionFilter
from app.cli.connection import Target, open_client, target_options
from app.cli.export import export_session
from app.cli.parts import Parts
from app.cli.printable import moment, one_line, printable
from app.cli.replies import SessionReply
from app.cli.screen import Screen

MOST_LISTED = 10_000


def sessions_group(parts: Parts) -> click.Group:
    """Return the group `sessions`."""
    group = click.Group("sessions", help="List, show, export and delete sessions.")
    for build in (_list_command, _show_command, _export_command, _delete_command):
        group.add_command(build(parts))
    return group


def _list_command(parts: Parts) -> click.Command:
    @click.command("list")
    @click.option("--limit", type=click.IntRange(1, MOST_LISTED), default=20, show_default=True)
    @click.option("--cursor", default="", help="Go on behind an earlier list.")
    @click.option("--agent", default="", help="Only sessions with this agent.")
    @click.option("--q", default="", help="Only sessions whose title holds this text.")
    @target_options
    def command(limit: int, cursor: str, agent: str, q: str, target: Target) -> None:
        """List sessions, newest updated first."""
        asyncio.run(_list(parts, target, SessionFilter(agent, q), limit=limit, cursor=cursor))

    return command


def _show_command(parts: Parts) -> click.Command:
    @click.command("show")
    @click.argument("session_id", metavar="ID", type=click.UUID)
    @target_options
    def command(session_id: UUID, target: Target) -> None:
        """Show a session and how full its window is."""
        asyncio.run(_show(parts, target, str(session_id)))

    return command


def _export_command(parts: Parts) -> click.Command:
    @click.command("export")
    @click.argument("session_id", metavar="ID", type=click.UUID)
    @click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
    @target_options
    def command(session_id: UUID, output: Path | None, target: Target) -> None:
        """Write a session and its full history as JSON Lines."""
        asyncio.run(_export(parts, target, str(session_id), output))

    return command


def _delete_command(parts: Parts) -> click.Command:
    @click.command("delete")
    @click.argument("session_id", metavar="ID", type=click.UUID)
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @target_options
    def command(session_id: UUID, yes: bool, target: Target) -> None:
        """Erase a session with all its messages and summaries, for ever."""
        if not yes:
            click.confirm(f"Erase session {session_id} with its whole history, for ever?", abort=True, err=True)
        asyncio.run(_delete(parts, target, str(session_id)))

    return command


async def _list(parts: Parts, target: Target, chosen: SessionFilter, *, limit: int, cursor: str) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        sessions, behind = await client.sessions(chosen, limit=limit, cursor=cursor)
    if not sessions:
        screen.note("no sessions found")
        return
    screen.draw(_sessions_table(sessions))
    if behind:
        screen.note(f"there are more: --cursor {behind}")


async def _show(parts: Parts, target: Target, session_id: str) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        session = await client.session(session_id)
        context = await client.context(session_id)
    screen.say(f"Session  {session.id}{' (archived)' if session.archived else ''}")
    screen.say(f"Title    {one_line(session.title or '–', limit=100)}")
    screen.say(f"Agent    {session.agent}")
    screen.say(f"Source   {session.source}")
    screen.say(f"Created  {moment(session.created_at)}, updated {moment(session.updated_at)}")
    screen.say(in_history(session))
    screen.draw(draw_context(context, width=screen.width))


async def _export(parts: Parts, target: Target, session_id: str, output: Path | None) -> None:
    async with open_client(parts, target) as client:
        count = await export_session(client, session_id, output)
    if output is not None:
        Screen().note(f"{count} messages written to {output}")


async def _delete(parts: Parts, target: Target, session_id: str) -> None:
    async with open_client(parts, target) as client:
        await client.delete_session(session_id)
    Screen().note(f"session {session_id} is erased")


def _sessions_table(sessions: list[SessionReply]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("ID", no_wrap=True, min_width=36)
    table.add_column("Agent", no_wrap=True)
    table.add_column("Messages", justify="right")
    table.add_column("Updated", no_wrap=True)
    table.add_column("Title", no_wrap=True, ratio=1)
    for session in sessions:
        cells = (
            session.id,
            session.agent,
            str(session.message_count),
            moment(session.updated_at),
            one_line(session.title or "–", limit=80),
        )
        table.add_row(*(Text(printable(cell), overflow="ellipsis") for cell in cells))
    return table
