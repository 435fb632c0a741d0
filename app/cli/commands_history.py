"""`throughline sessions import | redact`: bringing a conversation in, and taking a message's text away."""

import asyncio
from typing import BinaryIO
from uuid import UUID

import click

from app.cli.client import ServiceClient
from app.cli.connection import Target, open_client, target_options
from app.cli.importing import Renamed, import_session
from app.cli.parts import Parts
from app.cli.printable import one_line
from app.cli.screen import Screen
from app.domain.errors import InvalidInput

MOST_DIGITS = 10
LARGEST_POSITION = 2**31 - 1


def import_command(parts: Parts) -> click.Command:
    """Return the command `import`."""

    @click.command("import")
    @click.argument("file", type=click.File("rb"))
    @click.option("--agent", default="", help="The agent to go on with, in place of the one in the file.")
    @click.option("--title", default="", help="The title, in place of the one in the file.")
    @target_options
    def command(file: BinaryIO, agent: str, title: str, target: Target) -> None:
        """Make a new session of FILE (- reads from a pipe); the model is not called.

        FILE holds a conversation in OpenAI's message format ({"agent", "messages", …} or the list of messages alone),
        or what `sessions export` wrote.
        """
        asyncio.run(_import(parts, target, file.read(), Renamed(agent, title)))

    return command


def redact_command(parts: Parts) -> click.Command:
    """Return the command `redact`."""

    @click.command("redact")
    @click.argument("session_id", metavar="SESSION", type=click.UUID)
    @click.argument("message", metavar="POSITION|ID")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @target_options
    def command(session_id: UUID, message: str, yes: bool, target: Target) -> None:
        """Put a marker in the place of a message's text, for ever, and take away all that was made from it."""
        name = _name_of(message)
        if not yes:
            asked = f"Take away the text of message {name} of session {session_id} and all that was made from it, "
            click.confirm(f"{asked}for ever?", abort=True, err=True)
        asyncio.run(_redact(parts, target, str(session_id), name))

    return command


async def _import(parts: Parts, target: Target, content: bytes, renamed: Renamed) -> None:
    screen = Screen()
    async with open_client(parts, target) as client:
        session = await import_session(client, content, renamed)
    screen.say(session.id)
    screen.note(
        f"{session.message_count:,} messages imported; to go on with them:",
        command=f"throughline chat --session {session.id}{target.options}",
    )


async def _redact(parts: Parts, target: Target, session_id: str, name: str) -> None:
    async with open_client(parts, target) as client:
        message = await client.redact(session_id, await _message_id(client, session_id, name))
    Screen().note(f"message #{message.position} is redacted: a marker stands in the place of its text")


async def _message_id(client: ServiceClient, session_id: str, name: str) -> str:
    if not name.startswith("#"):
        return name
    message = await client.message_at(session_id, int(name[1:]))
    if message is None:
        raise InvalidInput(f"There is no message {name} in session {session_id}.")
    return message.id


def _name_of(argument: str) -> str:
    """Return an id as it is written everywhere, a position as `#12`. Raises InvalidInput for anything else."""
    digits = argument.removeprefix("#")
    if digits.isascii() and digits.isdecimal() and 1 <= int(digits[: MOST_DIGITS + 1]) <= LARGEST_POSITION:
        return f"#{int(digits)}"
    try:
        return str(UUID(argument))
    except ValueError:
        raise InvalidInput(
            f"{one_line(argument, limit=40)!r} is neither the position of a message, like 12, nor its id."
        ) from None
