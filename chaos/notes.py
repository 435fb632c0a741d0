"""What the tools did in the world: a tool that must not be called again was called once at most for each call."""

from collections import Counter
from pathlib import Path

from chaos.findings import Fault, Finding


def check_notes(path: Path) -> tuple[Finding, ...]:
    """Return the calls that had their effect twice although their tool must not be called again."""
    lines = Counter(path.read_text().splitlines() if path.exists() else ())
    twice = [line for line, times in lines.items() if line.startswith("note_once ") and times > 1]
    return tuple(Finding(Fault.RESULT, f"called again: {line}") for line in twice)
