"""Ids of sessions as users type them, whole or their first characters.

The chat uses them and the commands for sessions.
"""

import re
from uuid import UUID

import click

from throughline.cli.client import ServiceClient, SessionFilter
from throughline.cli.printable import moment, one_line
from throughline.cli.screen import Screen
from throughline.domain.errors import InvalidInput, NotFound

SHORTEST_PREFIX = 4
PREFIX = re.compile(rf"(?:[0-9a-f]-?){{{SHORTEST_PREFIX},32}}", re.IGNORECASE)
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
    """Return a whole id in its canonical form, the first characters of one in small letters, '' for anything else."""
    try:
        return str(UUID(text))
    except ValueError:
        return text.lower() if PREFIX.fullmatch(text) else ""


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
