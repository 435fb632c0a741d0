"""The command `throughline sessions import`: one conversation, an export with many, or the threads of a database."""

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from types import ModuleType
from typing import IO, Any, BinaryIO

import click

from throughline.cli.connection import ServiceTarget, open_client, target_options
from throughline.cli.imports import chatgpt, claude, langgraph
from throughline.cli.imports.conversation import ForeignConversation
from throughline.cli.imports.import_all import Found, Import
from throughline.cli.imports.json_list import ExportFile, Item, NoList
from throughline.cli.printable import one_line
from throughline.cli.screen import Screen
from throughline.cli.session_files import Renamed, import_session
from throughline.domain.errors import InvalidInput
from throughline.ports.stored_threads import LeftOut, StoredThreads

CHATGPT, CLAUDE, LANGGRAPH, OPENAI = "chatgpt", "claude", "langgraph", "openai"
EXPORTS: Mapping[str, tuple[ModuleType, str]] = {CHATGPT: (chatgpt, "mapping"), CLAUDE: (claude, "chat_messages")}
"""Programs whose exports hold many conversations: what reads one, and the member by which it is known."""

SCHEMES = ("postgresql://", "postgres://", "postgresql+asyncpg://")


class FileOrUrl(click.ParamType["str | IO[Any]"]):
    """A file, or the URL of a database."""

    name = "source"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str | IO[Any]:
        """Return the URL as it is, and a file opened for bytes."""
        return value if value.startswith(SCHEMES) else click.File("rb").convert(value, param, ctx)


@dataclass(frozen=True, slots=True)
class ImportChoices:
    """Options of an import. '' stands for none of them; `renamed` is for a single conversation."""

    origin: str
    user: str
    channel: str
    dry_run: bool
    renamed: Renamed


@click.command("import")
@click.argument("source", metavar="FILE|URL", type=FileOrUrl())
@click.option(
    "--from",
    "origin",
    type=click.Choice([CHATGPT, CLAUDE, LANGGRAPH, OPENAI]),
    default=None,
    help="Where the conversations come from.  [default: seen by the content]",
)
@click.option("--agent", default="", help="Agent of the new sessions, instead of the one in the file.")
@click.option("--user", default="", help="User for whom to import, with a key that has the scope act_as.")
@click.option("--title", default="", help="Title of the new session, instead of the one in the file.")
@click.option("--external-id", help="External id of the new session, instead of the one in the file; '' for none.")
@click.option("--channel", default="messages", show_default=True, help="Channel of LangGraph with the messages.")
@click.option("--dry-run", is_flag=True, help="Read many conversations and tell what would be imported.")
@target_options
def import_command(source: BinaryIO | str, target: ServiceTarget, **given: str | bool | None) -> None:
    """Create sessions from FILE (- reads from a pipe) or from the database at URL; no model is called.

    FILE contains a conversation in OpenAI's message format ({"agent", "messages", …} or only the list of messages), or
    the output of `sessions export`, or it is an export of ChatGPT or Claude: the ZIP archive or its conversations.json.
    URL is a PostgreSQL database with LangGraph's checkpoints, which is only read.

    Of many conversations each becomes a session with its id as external id. Those that have one are skipped, so that an
    import may be repeated. At the end stands what was left out. The exit code is 1 if a conversation was not imported.
    """
    renamed = Renamed(str(given["agent"]), str(given["title"]), _text(given["external_id"]))
    options = ImportChoices(
        origin=_text(given["origin"]) or "",
        user=str(given["user"]),
        channel=str(given["channel"]),
        dry_run=bool(given["dry_run"]),
        renamed=renamed,
    )
    if isinstance(source, str):
        asyncio.run(_import_threads(target, source, options))
    else:
        _import_file(target, source, options)


def _text(value: str | bool | None) -> str | None:
    return value if isinstance(value, str) else None


def _import_file(target: ServiceTarget, file: BinaryIO, options: ImportChoices) -> None:
    if options.origin == LANGGRAPH:
        raise click.UsageError("LangGraph's checkpoints are read from a database: give its URL, postgresql://…")
    seekable = file if file.seekable() else io.BytesIO(file.read())
    export = ExportFile(seekable, one_line(str(getattr(file, "name", "the input")), limit=200))
    origin = options.origin or _seen_origin(export)
    if origin in EXPORTS:
        asyncio.run(_import_many(target, options, lambda: _conversations(export, origin), _others(export)))
        return
    if options.dry_run:
        raise click.UsageError("--dry-run is for exports of ChatGPT and Claude and for LangGraph's threads.")
    seekable.seek(0)
    asyncio.run(_import_one(target, seekable.read(), options))


def _seen_origin(export: ExportFile) -> str:
    """Return which program the first conversation is of. Raises InvalidInput for a damaged file or another archive."""
    try:
        with closing(export.items()) as items:
            first = next(items, None)
    except NoList:
        return OPENAI
    for origin, (_, member) in EXPORTS.items():
        if first is not None and member in first.members:
            return origin
    if export.is_archive:
        raise InvalidInput(f"{export.name} has no conversations of ChatGPT or Claude.")
    return OPENAI


def _others(export: ExportFile) -> list[LeftOut]:
    return [LeftOut("other files of the archive", name) for name in export.others()]


async def _conversations(export: ExportFile, origin: str) -> AsyncIterator[Found]:
    reader, member = EXPORTS[origin]
    for item in export.items():
        if member not in item.members:
            raise InvalidInput(f"{item.place} has no `{member}`: it is no conversation of {origin}.")
        yield Found(_place(item), reader.conversation_id(item.members), _reading(reader, item))


def _place(item: Item) -> str:
    title = item.members.get("title") or item.members.get("name")
    return f"{item.place} ({one_line(title, limit=60)})" if isinstance(title, str) else item.place


def _reading(reader: ModuleType, item: Item) -> Callable[[], Awaitable[ForeignConversation]]:
    async def read() -> ForeignConversation:
        if not reader.conversation_id(item.members):
            raise InvalidInput("it has no id, by which a repeated import would know it.")
        found: ForeignConversation = reader.read(item.members)
        return found

    return read


async def _import_threads(target: ServiceTarget, url: str, options: ImportChoices) -> None:
    if options.origin not in {"", LANGGRAPH}:
        raise click.UsageError(f"A database is read with --from {LANGGRAPH} only.")
    async with target.dependencies.stored_threads(url, options.channel) as threads:
        await _import_many(target, options, lambda: _threads(threads), [])


async def _threads(threads: StoredThreads) -> AsyncIterator[Found]:
    async for thread_id in threads.ids():
        yield Found(f"thread {one_line(thread_id, limit=100)}", thread_id, _thread_reading(threads, thread_id))


def _thread_reading(threads: StoredThreads, thread_id: str) -> Callable[[], Awaitable[ForeignConversation]]:
    async def read() -> ForeignConversation:
        return langgraph.read(await threads.read(thread_id))

    return read


async def _import_many(
    target: ServiceTarget, options: ImportChoices, found: Callable[[], AsyncIterator[Found]], left_out: list[LeftOut]
) -> None:
    if options.renamed.title or options.renamed.external_id is not None:
        raise click.UsageError("--title and --external-id are for a single conversation.")
    if not options.renamed.agent:
        raise InvalidInput("Name the agent of the new sessions: add --agent, for example --agent assistant.")
    async with open_client(target, user=options.user) as client:
        work = Import(client, Screen(), options.renamed.agent, is_dry=options.dry_run)
        for left in left_out:
            work.leave_out(left)
        await work.run(found())


async def _import_one(target: ServiceTarget, content: bytes, options: ImportChoices) -> None:
    screen = Screen()
    async with open_client(target, user=options.user) as client:
        session = await import_session(client, content, options.renamed)
    screen.say(session.id)
    screen.note(
        f"{session.message_count:,} messages imported; to continue:",
        command=f"throughline chat --session {session.id}{target.options}",
    )
