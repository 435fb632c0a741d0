"""The commands `throughline sessions …` and `runs …`: operations outside of a chat."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import click
from rich.text import Text

from throughline.cli.chat.answer_stream import RETRY_DELAYS_SECONDS, AnswerStream
from throughline.cli.chat.ask_person import ask_and_resume, draw_call, how_to_resume, what_it_waits_for
from throughline.cli.chat.context_commands import drawn_summaries, restore_version
from throughline.cli.chat.print_answer import print_answer
from throughline.cli.chat.state import ChatState, in_history
from throughline.cli.client import ServiceClient, SessionFilter
from throughline.cli.connection import ServiceTarget, asynchronous, open_client, target_options
from throughline.cli.context_views import draw_context, draw_preview
from throughline.cli.history_views import draw_hit
from throughline.cli.imports.command import import_command
from throughline.cli.printable import joined, moment, one_line, printable
from throughline.cli.screen import Screen
from throughline.cli.session_files import (
    check_id,
    export_session,
    is_position,
    is_whole,
    whole_id,
)
from throughline.domain.errors import InvalidInput
from throughline.domain.tool import read_arguments
from throughline.wire.events import RunOut
from throughline.wire.json_shape import JsonDict
from throughline.wire.sessions import SessionOut

NO_REASON = ""
runs = click.Group("runs", help="Show a run; give a waiting one what it waits for.")
run_argument = click.argument("run_id", metavar="RUN", type=click.UUID)


@runs.command("show")
@run_argument
@target_options
@asynchronous
async def show_run(run_id: UUID, target: ServiceTarget) -> None:
    """Show a run, and what it waits for."""
    screen = Screen()
    async with open_client(target) as client:
        run = await client.get_run(str(run_id))
    screen.say(f"Run      {run.id}")
    screen.say(f"Session  {run.session_id}")
    screen.say(f"Status   {one_line(run.status, limit=20)}")
    screen.say(f"Created  {moment(run.created_at)}, ended {moment(run.finished_at)}")
    if run.error is not None:
        screen.say(f"Error    {one_line(run.error.detail, limit=500)}")
    if run.waiting_for is not None:
        screen.say(what_it_waits_for(run))
        for call in run.waiting_for.calls:
            screen.say(f"Call     {printable(call.id)}")
            screen.draw(draw_call(call))
        screen.note(how_to_resume(run))


@runs.command("resume")
@run_argument
@click.option("--approve", is_flag=True, help="Let the call be run.")
@click.option("--reject", is_flag=False, flag_value=NO_REASON, metavar="[REASON]", help="Do not let the call be run.")
@click.option("--edit", metavar="JSON", help="Let the call be run with these arguments.")
@click.option("--answer", metavar="TEXT", help="Answer the question.")
@click.option("--call", "call_id", default="", metavar="ID", help="Which call, if the run waits for several.")
@target_options
@asynchronous
async def resume(run_id: UUID, call_id: str, target: ServiceTarget, **options: str | bool | None) -> None:
    """Give a waiting RUN what it waits for, and print the rest of its answer.

    The exit code is 3 if the run still waits, or waits again.
    """
    given = _read_resolution(options)
    async with open_client(target, takes_turns=True) as client:
        run = await client.get_run(str(run_id))
        stream = await _seen(client, run)
        session = await client.session(run.session_id)
        state = ChatState(client, Screen(), session.agent, session=session)
        resumed = await client.resume_run(run.id, {"call_id": call_id or _only_call(run), **given})
        if resumed.waiting_for is None or await ask_and_resume(state, run.id):
            await print_answer(state, stream)


def _read_resolution(options: Mapping[str, str | bool | None]) -> JsonDict:
    """Return the member of the request that the options stand for. Raises UsageError unless exactly one is given."""
    given = [(name, value) for name, value in options.items() if value not in {None, False}]
    match given:
        case [("approve", _)]:
            return {"decision": "approve"}
        case [("reject", str(reason))]:
            return {"decision": "reject", "reason": reason}
        case [("edit", str(arguments))]:
            return {"decision": "edit", "arguments": read_arguments(arguments)}
        case [("answer", str(text))]:
            return {"output": text}
        case _:
            raise click.UsageError("Give one of --approve, --reject, --edit and --answer.")


def _only_call(run: RunOut) -> str:
    """Return the id of the call that the run waits for. Raises InvalidInput if it waits for several or none."""
    calls = [] if run.waiting_for is None else [call.id for call in run.waiting_for.calls]
    if not calls:
        raise InvalidInput(f"The run {run.id} is {run.status} and waits for nothing. `runs show` shows it.")
    if len(calls) > 1:
        raise InvalidInput(f"The run waits for several calls. Name one with --call: {', '.join(calls)}.")
    return calls[0]


async def _seen(client: ServiceClient, run: RunOut) -> AnswerStream:
    """Return the stream of what follows in a waiting run: its events until now are read and not shown."""
    stream = AnswerStream.of_run(client, run, retry_delays=RETRY_DELAYS_SECONDS)
    if run.waiting_for is not None:
        async for _ in stream.events():
            pass
    return stream


MOST_LISTED = 10_000
WIDE = 100  # columns from which on a list of sessions shows the time of day
MOST_OF_AGENT, LEAST_OF_AGENT = 30, 12
MOST_FOUND = 50

sessions = click.Group(
    "sessions",
    commands=[import_command],
    help="List, show, export, import and delete sessions; show their context.",
)
id_argument = click.argument("session_id", metavar="ID", callback=check_id)


@sessions.command("list")
@click.option(
    "--limit", type=click.IntRange(1, MOST_LISTED), default=20, show_default=True, help="Most sessions to list."
)
@click.option("--cursor", default="", help="Continue after an earlier list: its cursor.")
@click.option("--agent", default="", help="Only sessions with this agent.")
@click.option("--q", default="", help="Only sessions whose title contains this text.")
@click.option("--external-id", default="", help="Only the session with this external id.")
@click.option("--metadata", default="", metavar="JSON", help='Only sessions whose metadata contain this: {"a": 1}.')
@target_options
@asynchronous
async def list_sessions(limit: int, cursor: str, target: ServiceTarget, **filters: str) -> None:
    """List sessions, newest updated first."""
    screen = Screen()
    async with open_client(target) as client:
        found, behind = await client.sessions(SessionFilter(**filters), limit=limit, cursor=cursor)
    if not found:
        screen.note("no sessions found")
        return
    screen.draw(draw_sessions(found, width=screen.width))
    if behind:
        screen.note("there are more:", command=f"--cursor {behind}")


@sessions.command("show")
@id_argument
@target_options
@asynchronous
async def show(session_id: str, target: ServiceTarget) -> None:
    """Show a session and how full its window is."""
    screen = Screen()
    async with open_client(target) as client:
        session = await client.session(await whole_id(client, screen, session_id))
        context = await client.context(session.id)
    screen.say(f"Session  {session.id}{' (archived)' if session.archived else ''}")
    screen.say(f"Title    {one_line(session.title or '–', limit=100)}")
    screen.say(f"Agent    {session.agent}")
    screen.say(f"Source   {session.source}")
    if session.external_id is not None:
        screen.say(f"External {one_line(session.external_id, limit=255)}")
    screen.say(f"Created  {moment(session.created_at)}, updated {moment(session.updated_at)}")
    screen.say(in_history(session, 0 if context.prepared is None else context.prepared.through_position))
    screen.draw(draw_context(context, width=screen.width))


@sessions.command("search")
@click.argument("words", metavar="WORDS")
@click.option("--session", "session_id", callback=check_id, help="Only in this session.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_FOUND), default=10, show_default=True, help="Most messages to find."
)
@target_options
@asynchronous
async def search(words: str, session_id: str | None, limit: int, target: ServiceTarget) -> None:
    """Find messages by their words, in all sessions or in one."""
    screen = Screen()
    async with open_client(target) as client:
        inside = "" if session_id is None else await whole_id(client, screen, session_id)
        found = await client.search(inside, words, limit=limit)
        screen.note_age(client.age)
    for hit in found:
        screen.draw(draw_hit(hit, names_session=session_id is None))
    if not found:
        screen.note("nothing was found")


@sessions.command("export")
@id_argument
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@target_options
@asynchronous
async def export(session_id: str, output: Path | None, target: ServiceTarget) -> None:
    """Write a session and its full history as JSON Lines."""
    screen = Screen()
    async with open_client(target) as client:
        count = await export_session(client, await whole_id(client, screen, session_id), output)
        screen.note_age(client.age)
    if output is not None:
        screen.note(f"{count} messages written to {output}")


@sessions.command("delete")
@id_argument
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@target_options
def delete(session_id: str, yes: bool, target: ServiceTarget) -> None:
    """Delete a session with all its messages and summaries permanently."""
    session_id = _whole(target, session_id, is_asked=not yes)
    if not yes:
        click.confirm(f"Delete session {session_id} with its whole history permanently?", abort=True, err=True)
    asyncio.run(_delete(target, session_id))


@sessions.command("redact")
@click.argument("session_id", metavar="SESSION", callback=check_id)
@click.argument("message", metavar="POSITION|ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@target_options
def redact(session_id: str, message: str, yes: bool, target: ServiceTarget) -> None:
    """Replace a message's text by a marker permanently, and delete everything that was made from the text."""
    name, session_id = _name_of(message), _whole(target, session_id, is_asked=not yes)
    if not yes:
        asked = (
            f"Replace the text of message {name} of session {session_id} by a marker, and delete everything made "
            "from it, "
        )
        click.confirm(f"{asked}permanently?", abort=True, err=True)
    asyncio.run(_redact(target, session_id, name))


@sessions.command("context")
@id_argument
@click.option("--preview", is_flag=True, help="Also show how each message would be shown in the next call.")
@target_options
@asynchronous
async def show_context(session_id: str, preview: bool, target: ServiceTarget) -> None:
    """Show how full a session's window is, and what the next message will trigger."""
    screen = Screen()
    async with open_client(target) as client:
        found = await whole_id(client, screen, session_id)
        context = await client.context(found)
        plan = await client.preview(found, "") if preview else None
    screen.draw(draw_context(context, width=screen.width))
    if plan is not None:
        screen.draw(draw_preview(plan, width=screen.width))


@sessions.command("summaries")
@id_argument
@click.argument("versions", metavar="[VERSION [VERSION]]", nargs=-1)
@target_options
@asynchronous
async def list_summaries(session_id: str, versions: tuple[str, ...], target: ServiceTarget) -> None:
    """List the versions of a session's summary, newest first; print one version, or the changes between two."""
    screen = Screen()
    async with open_client(target) as client:
        found = await whole_id(client, screen, session_id)
        screen.draw(await drawn_summaries(client, found, " ".join(versions), width=screen.width))


@sessions.command("restore")
@id_argument
@click.argument("version", metavar="VERSION")
@target_options
@asynchronous
async def restore(session_id: str, version: str, target: ServiceTarget) -> None:
    """Restore VERSION (number or id, 0 for none) of a session's summary; no message is lost."""
    screen = Screen()
    async with open_client(target) as client:
        _, lines = await restore_version(client, await whole_id(client, screen, session_id), version)
    for line in lines:
        screen.say(line)


def draw_sessions(listed: Sequence[SessionOut], *, width: int) -> Text:
    """Return a head and one line for each session. The title comes last and is cut to the end of the line.

    A narrow screen shows dates without times and shortened agent names, to leave room for the title.
    """
    is_wide = width >= WIDE
    agents = [one_line(session.agent, limit=MOST_OF_AGENT if is_wide else LEAST_OF_AGENT) for session in listed]
    agent_width = max(len("Agent"), *map(len, agents))
    when_width = len("2026-05-04 03:02") if is_wide else len("2026-05-04")
    head = f"{'ID':<36} {'Agent':<{agent_width}} Messages {'Updated':<{when_width}} Title"
    rows = (
        f"{printable(session.id):<36} {agent:<{agent_width}} {session.message_count:>8} "
        f"{moment(session.updated_at)[:when_width]:<{when_width}} {one_line(session.title or '–', limit=80)}"
        for session, agent in zip(listed, agents, strict=True)
    )
    return joined([Text(head, style="bold"), *map(Text, rows)], width=width)


def _whole(target: ServiceTarget, session_id: str, *, is_asked: bool) -> str:
    """Return the whole id, found before the user is asked to confirm what happens to the session.

    Raises UsageError for less than a whole id if the user is not asked: it may begin another id than the one meant.
    """
    if is_whole(session_id):
        return session_id
    found = asyncio.run(_find(target, session_id))
    if not is_asked:
        raise click.UsageError(f"--yes takes no first characters of an id. Write the whole one: {found}")
    return found


async def _find(target: ServiceTarget, session_id: str) -> str:
    async with open_client(target) as client:
        return await whole_id(client, Screen(), session_id)


async def _delete(target: ServiceTarget, session_id: str) -> None:
    async with open_client(target) as client:
        kept = await client.delete_session(session_id)
    screen = Screen()
    screen.note(f"session {session_id} is deleted")
    for one in kept:
        screen.note(f"session {one.session_id} was imported from it and keeps {one.message_count} copies of messages")


async def _redact(target: ServiceTarget, session_id: str, name: str) -> None:
    async with open_client(target) as client:
        message = await client.redact(session_id, await _message_id(client, session_id, name))
    screen = Screen()
    screen.note(f"message #{message.position} is redacted: a marker replaces its text")
    for copy in message.copies:
        screen.note(f"message #{copy.position} of the imported session {copy.session_id} is a copy and keeps the text")


async def _message_id(client: ServiceClient, session_id: str, name: str) -> str:
    if not name.startswith("#"):
        return name
    message = await client.message_at(session_id, int(name[1:]))
    if message is None:
        raise InvalidInput(f"There is no message {name} in session {session_id}.")
    return message.id


def _name_of(argument: str) -> str:
    """Return an id in its canonical form, or a position as `#12`. Raises InvalidInput for anything else."""
    digits = argument.removeprefix("#")
    if is_position(digits):
        return f"#{int(digits)}"
    try:
        return str(UUID(argument))
    except ValueError:
        raise InvalidInput(
            f"{one_line(argument, limit=40)!r} is neither the position of a message, such as 12, nor its id."
        ) from None
