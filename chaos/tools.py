"""Tools with an effect that can be counted: each call writes a line to the file CHAOS_NOTES names."""

import os
from pathlib import Path

from throughline.tools import ToolContext, not_repeatable

NOTES = "CHAOS_NOTES"


def note(context: ToolContext, text: str) -> str:
    """Write a line down; may be called again."""
    return _write("note", context, text)


@not_repeatable
def note_once(context: ToolContext, text: str) -> str:
    """Write a line down; must not be called again."""
    return _write("note_once", context, text)


def _write(tool: str, context: ToolContext, text: str) -> str:
    file = os.open(Path(os.environ[NOTES]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{tool} {context.idempotency_key}\n".encode())
    finally:
        os.close(file)
    return f"noted {text}"
