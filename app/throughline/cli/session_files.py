"""A session as a file: exported as JSON Lines, imported from them or from OpenAI's message format."""

import json
import re
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TextIO
from uuid import UUID

import click

from throughline.cli.client import JSON_LINES, ServiceClient, SessionFilter
from throughline.cli.printable import moment, one_line
from throughline.cli.screen import Screen
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import InvalidInput, NotFound
from throughline.wire.sessions import SessionOut

# Ids of sessions as users type them, whole or their first characters. The chat uses them and the commands for sessions.

SHORTEST_PREFIX = 4
PREFIX = re.compile(rf"(?:[0-9a-f]-?){{{SHORTEST_PREFIX},32}}", re.IGNORECASE)
GROUPS = (0, 8, 12, 16, 20, 32)
LENGTH = 36
MOST_CANDIDATES = 10


def check_id(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Return what `read_id` reads in the value of an option or argument, None for None. Raises BadParameter."""
    given = None if value is None else read_id(value)
    if given == "":
        raise click.BadParameter(
            f"{one_line(str(value), limit=40)!r} is neither a session's id nor the first {SHORTEST_PREFIX} or more "
            "characters of one."
        )
    return given


def read_id(text: str) -> str:
    """Return a whole id or the first characters of one in the canonical form, '' for anything else."""
    try:
        return str(UUID(text))
    except ValueError:
        digits = text.lower().replace("-", "") if PREFIX.fullmatch(text) else ""
        return "-".join(filter(None, (digits[begin:end] for begin, end in pairwise(GROUPS))))


def is_whole(given: str) -> bool:
    """Return whether `given`, as `read_id` returned it, is a whole id."""
    return len(given) == LENGTH


async def whole_id(client: ServiceClient, screen: Screen, given: str) -> str:
    """Return the id of the user's session that `given` begins, archived or not. A whole id is not looked up.

    Raises NotFound if no id begins with it. If several do, prints up to ten of them and raises InvalidInput.
    """
    if is_whole(given):
        return given
    chosen = SessionFilter(id_prefix=given, include_archived="true")
    found, _ = await client.sessions(chosen, limit=MOST_CANDIDATES + 1)
    if not found:
        raise NotFound(f"You have no session whose id begins with {given}. `throughline sessions list` lists them.")
    if len(found) == 1:
        return found[0].id
    for session in found[:MOST_CANDIDATES]:
        screen.note(f"{session.id}  {moment(session.updated_at)}  {one_line(session.title or 'Untitled', limit=40)}")
    count = f"More than {MOST_CANDIDATES}" if len(found) > MOST_CANDIDATES else f"{len(found)}"
    raise InvalidInput(f"{count} sessions have ids that begin with {given}. Write more characters of the one you mean.")


LARGEST_POSITION = 2**31 - 1


def is_position(text: str) -> bool:
    """Return whether a text is the position of a message, in decimal digits."""
    return text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= LARGEST_POSITION


JSON = "application/json"

# Escaped although JSON allows them: readers treat some as line ends, terminals treat others as commands, or
# show the text after them in another order.
ESCAPED = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Renamed:
    """Values that replace those of the file in the new session.

    '' keeps the file's agent or title. None keeps its external id, and '' leaves the new session without one.
    """

    agent: str = ""
    title: str = ""
    external_id: str | None = None

    def given(self) -> dict[str, str]:
        """Return the values that replace something, by field."""
        named = {"agent": self.agent, "title": self.title}
        chosen = {} if self.external_id is None else {"external_id": self.external_id}
        return {name: value for name, value in named.items() if value} | chosen


async def export_session(client: ServiceClient, session_id: str, output: Path | None) -> int:
    """Write the session to `output`, to standard output if None; return the number of messages.

    The first line is the session, each further one a message; `type` says which. The file gets its name only when it is
    complete. Raises InvalidInput if it cannot be written.
    """
    if output is None:
        return await _write(client, session_id, None)
    unfinished = output.with_name(f"{output.name}.part")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            count = await _write(client, session_id, file)
        unfinished.replace(output)
    except OSError as error:
        raise InvalidInput(f"Cannot write {output}: {error.strerror or error}. Choose another --output.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return count


async def import_session(client: ServiceClient, content: bytes, renamed: Renamed) -> SessionOut:
    """Create a session from a file's content. Raises InvalidInput if it has neither of the two formats."""
    whole = _parsed(content)
    if _is_export(whole) or (whole is None and _begins_with_a_line(content)):
        return await client.import_session(content, kind=JSON_LINES, replaced=renamed.given())
    if not isinstance(whole, dict | list):
        raise InvalidInput(
            "The file is neither JSON nor JSON Lines in UTF-8. It must contain a conversation in OpenAI's "
            "message format or the output of `throughline sessions export`."
        )
    body = _conversation(whole, renamed)
    return await client.import_session(json.dumps(body).encode(), kind=JSON)


async def _write(client: ServiceClient, session_id: str, file: TextIO | None) -> int:
    count = 0
    async with aclosing(client.export(session_id)) as lines:
        async for item in lines:
            click.echo(_line(item), file=file)
            count += item.get("type") == "message"
    return count


def _line(item: Mapping[str, object]) -> str:
    text = json.dumps(item, ensure_ascii=False)
    return ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _parsed(content: bytes) -> JsonValue:
    """Return the content parsed as JSON, None if it is not JSON."""
    try:
        value: JsonValue = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value


def _begins_with_a_line(content: bytes) -> bool:
    """Return whether the first line is a JSON object by itself.

    Errors in the other lines are left to the service, which explains them best.
    """
    lines = content.lstrip().splitlines()
    return bool(lines) and isinstance(_parsed(lines[0]), dict)


def _is_export(whole: JsonValue) -> bool:
    """Return whether the value is an export of a session without messages, which is a single line."""
    return isinstance(whole, dict) and whole.get("type") == "session"


def _conversation(whole: "dict[str, JsonValue] | list[JsonValue]", renamed: Renamed) -> dict[str, JsonValue]:
    """Return the request body for the service. A bare list counts as the messages."""
    body: dict[str, JsonValue] = {"messages": whole} if isinstance(whole, list) else dict(whole)
    body |= {name: value or None for name, value in renamed.given().items()}
    if "agent" not in body:
        raise InvalidInput("The file names no agent. Add --agent, for example --agent assistant.")
    return body
