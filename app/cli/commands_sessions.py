"""`throughline sessions list | show | search | export | delete`, and the group with all commands on sessions."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import click
from rich.text import Text

from app.cli.bars import draw_context
from app.cli.chat_state import in_history
from app.cli.client import SessionFilter
from app.cli.commands_context import context_command, restore_command, summaries_command
from app.cli.commands_history import import_command, redact_command
from app.cli.connection import Target, open_client, target_options
from app.cli.export import export_session
from app.cli.history_views import draw_hit
from app.cli.parts import Parts
from app.cli.printable import joined, moment, one_line, printable
from app.cli.screen import Screen
from app.wire.sessions import SessionOut

MOST_LISTED = 10_000
WIDE = 100  # columns from which on a list of sessions tells the time of day
MOST_OF_AGENT, LEAST_OF_AGENT = 30, 12
MOST_FOUND = 50


def sessions_group(parts: Parts) -> click.Group:
    """Return the group `sessions`."""
    group = click.Group("sessions", help="List, show, export, import and delete sessions; look at their context.")
    own = (_list_command, _show_command, _search_command, _export_command, _delete_command)
    of_context = (context_command, summaries_command, restore_command)
    for build in (*own, import_command, redact_command, *of_context):
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


def _search_command(parts: Parts) -> click.Command:
    @click.command("search")
    @click.argument("words", metavar="WORDS")
    @click.option("--session", "session_id", type=click.UUID, help="Only in this session.")
    @click.option("--limit", type=click.IntRange(1, MOST_FOUND), default=10, show_default=True)
    @target_options
    def command(words: str, session_id: UUID | None, limit: int, target: Target) -> None:
        """Find messages by their words, in all sessions or in one."""
        asyncio.run(
            _search(parts, target, words, session_id="" if session_id is None else str(session_id), limit=limit)
        )

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
    screen.draw(draw_sessions(sessions, width=screen.width))
    if behind:
        screen.note("there are more:", command=f"--cursor {behind}")


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


async def _search(parts: Parts, target: Target, words: str, *, session_id: str, limit: int) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        found = await client.search(session_id, words, limit=limit)
    for hit in found:
        screen.draw(draw_hit(hit, names_session=not session_id))
    if not found:
        screen.note("nothing was found")


async def _export(parts: Parts, target: Target, session_id: str, output: Path | None) -> None:
    async with open_client(parts, target) as client:
        count = await export_session(client, session_id, output)
    if output is not None:
        Screen().note(f"{count} messages written to {output}")


async def _delete(parts: Parts, target: Target, session_id: str) -> None:
    async with open_client(parts, target) as client:
        await client.delete_session(session_id)
    Screen().note(f"session {session_id} is erased")


def draw_sessions(sessions: Sequence[SessionOut], *, width: int) -> Text:
    """Return a line for each session below a head. The title comes last and is cut to what is left of the line.

    A narrow screen shows days without their times, and long agent names cut, so that something of the title is left.
    """
    is_wide = width >= WIDE
    agents = [one_line(session.agent, limit=MOST_OF_AGENT if is_wide else LEAST_OF_AGENT) for session in sessions]
    agent_width = max(len("Agent"), *map(len, agents))
    when_width = len("2026-05-04 03:02") if is_wide else len("2026-05-04")
    head = f"{'ID':<36} {'Agent':<{agent_width}} Messages {'Updated':<{when_width}} Title"
    rows = (
        f"{printable(session.id):<36} {agent:<{agent_width}} {session.message_count:>8} "
        f"{moment(session.updated_at)[:when_width]:<{when_width}} {one_line(session.title or '–', limit=80)}"
        for session, agent in zip(sessions, agents, strict=True)
    )
    return joined([Text(head, style="bold"), *map(Text, rows)], width=width)
