"""The code blocks of our pages, as Markdown has them, and how a page marks one that is not run.

- `<!-- not run: why -->` right before a block keeps it from being run.
- `<!-- run first: … -->` holds lines of shell that a page's reader does not need, such as one that sets a variable.
- A block with `title="name"` behind its language is the text of that file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from fakes.programs import ROOT

SHELL = frozenset({"sh", "bash"})
CHECKED = SHELL | {"python", "yaml", "json"}
NOT_RUN = re.compile(r"<!--\s*not run:?(.*?)-->", re.DOTALL)
RUN_FIRST = re.compile(r"<!--\s*run first:(.*?)-->", re.DOTALL)
TITLE = re.compile(r'\btitle="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page, or its hidden lines of shell.

    `title` is the name of the file to write `text` to, '' if there is none. `why_not_run` is the reason not to run the
    block, '' if the page gives none, None if the block is run.
    """

    page: str
    line: int
    language: str
    text: str
    title: str = ""
    why_not_run: str | None = None

    @property
    def name(self) -> str:
        """Where the block begins, as `page:line`."""
        return f"{self.page}:{self.line}"


def document_pages() -> list[Path]:
    """Return the pages that a reader follows with commands of their own: README, first steps, guides."""
    docs = ROOT / "docs"
    folders = (docs / "getting-started", docs / "guides")
    found = sorted(page for folder in folders for page in folder.rglob("*.md"))
    return [ROOT / "README.md", docs / "getting-started.md", *found]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page that are checked, and its hidden lines of shell, in their order."""
    return read_blocks(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))


def read_blocks(page: str, text: str) -> list[Block]:
    """Return the blocks in the text of a page."""
    return list(_read(page, text))


def _read(page: str, text: str) -> Iterator[Block]:
    why_not_run: str | None = None
    for token in MarkdownIt().parse(text):
        line = (token.map or (0,))[0] + 1
        if token.type == "html_block":
            marked = NOT_RUN.search(token.content)
            why_not_run = marked[1].strip() if marked else None
            yield from (Block(page, line, "sh", found[1]) for found in RUN_FIRST.finditer(token.content))
            continue
        language, _, rest = token.info.strip().partition(" ")
        title = TITLE.search(rest)
        if token.type == "fence" and (language in CHECKED or title):
            yield Block(page, line, language, token.content, title[1] if title else "", why_not_run)
        why_not_run = None
