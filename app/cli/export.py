"""Writing a whole session as JSON Lines: first the session, then every message, each with its `type`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import click

from app.cli.client import ServiceClient
from app.domain.errors import InvalidInput

# Escaped although JSON allows them: readers take some for line ends, terminals others for commands.
ESCAPED = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


async def export_session(client: ServiceClient, session_id: str, output: Path | None) -> int:
    """Write the session to `output`, to standard output if None; return the number of messages.

    A file appears under its name only when it is whole. Raises InvalidInput where it cannot be written.
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


async def _write(client: ServiceClient, session_id: str, file: TextIO | None) -> int:
    count = 0
    click.echo(_line("session", await client.session_json(session_id)), file=file)
    async for message in client.history(session_id):
        click.echo(_line("message", message), file=file)
        count += 1
    return count


def _line(kind: str, item: Mapping[str, object]) -> str:
    text = json.dumps({"type": kind, **item}, ensure_ascii=False)
    return ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
