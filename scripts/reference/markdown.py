"""Tables and links of the made parts, in Markdown."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Line ends in cells become blanks, and bars are escaped; without rows only the head is left."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("".join(map(_cell, line)) + "|" for line in lines)


def code(text: object) -> str:
    """Return a text as code, '' if it is empty."""
    return f"`{text}`" if str(text) else ""


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(docs: Path, page: str, target: str) -> str:
    """Return a link from the page `page` to `target` (`guides/models.md#keys`), both below the folder `docs`.

    Its text is the target's heading. Raises ValueError if the target has no such heading.
    """
    path, _, wanted = target.partition("#")
    headings = HEADING.findall((docs / path).read_text(encoding="utf-8"))
    heading = next((text for text in headings if not wanted or anchor(text) == wanted), None)
    if heading is None:
        raise ValueError(f"{target} is no heading")
    folder, _, name = path.rpartition("/")
    near = name if folder == page.rpartition("/")[0] else f"../{path}"
    return f"[{heading}]({near}{'#' if wanted else ''}{wanted})"


def _cell(text: str) -> str:
    """Return a cell with its left border."""
    words = text.replace("|", "\\|").split()
    return f"| {' '.join(words)} " if words else "| "
