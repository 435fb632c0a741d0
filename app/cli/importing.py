"""Reading a file to import: a conversation in OpenAI's message format, or an export as `sessions export` writes it."""

import json
from dataclasses import dataclass

from app.cli.client import ServiceClient
from app.domain.errors import InvalidInput
from app.domain.json_types import JsonValue
from app.wire.sessions import SessionOut

JSON = "application/json"
JSON_LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Renamed:
    """What the new session is to have in place of what the file says; empty strings leave it."""

    agent: str = ""
    title: str = ""


async def import_session(client: ServiceClient, content: bytes, renamed: Renamed) -> SessionOut:
    """Make a session of a file's content. Raises InvalidInput for what is neither of the two formats."""
    whole = _parsed(content)
    if _is_export(whole) or (whole is None and _begins_with_a_line(content)):
        return await client.import_session(content, kind=JSON_LINES, agent=renamed.agent, title=renamed.title)
    if not isinstance(whole, dict | list):
        raise InvalidInput(
            "The file is neither JSON nor JSON Lines in UTF-8. It must hold a conversation in OpenAI's message format "
            "or what `throughline sessions export` wrote."
        )
    body = _conversation(whole, renamed)
    return await client.import_session(json.dumps(body).encode(), kind=JSON)


def _parsed(content: bytes) -> JsonValue:
    """Return what the bytes hold as JSON, None where they hold something else."""
    try:
        value: JsonValue = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value


def _begins_with_a_line(content: bytes) -> bool:
    """Whether the first line is an object by itself; what is wrong with the others the service tells best."""
    lines = content.lstrip().splitlines()
    return bool(lines) and isinstance(_parsed(lines[0]), dict)


def _is_export(whole: JsonValue) -> bool:
    """Whether it is the only line of an export: of a session without messages."""
    return isinstance(whole, dict) and whole.get("type") == "session"


def _conversation(whole: "dict[str, JsonValue] | list[JsonValue]", renamed: Renamed) -> dict[str, JsonValue]:
    """Return the body for the service; a bare list is taken for the messages."""
    body: dict[str, JsonValue] = {"messages": whole} if isinstance(whole, list) else dict(whole)
    if renamed.agent:
        body["agent"] = renamed.agent
    if renamed.title:
        body["title"] = renamed.title
    if "agent" not in body:
        raise InvalidInput("The file names no agent to go on with. Add --agent, for example --agent assistant.")
    return body
