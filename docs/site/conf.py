"""Configuration of the site that `make docs` builds from README.md, ARCHITECTURE.md, CHANGELOG.md and docs/.

The pages are the files as they are. The contents at the side follow docs/README.md and docs/decisions/README.md.
"""

import re
from os.path import normpath
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
LIST = ROOT / "docs/README.md"
PAGE = re.compile(r"\]\(([^)#]+)\.md\)")

project = "Throughline"
root_doc = "README"
include_patterns = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/**",
    "benchmarks/data/SOURCE.md",
    "examples/*/README.md",
]
exclude_patterns = ["docs/site"]
extensions = ["myst_parser"]
myst_heading_anchors = 6
html_theme = "furo"
html_title = "Throughline"
html_extra_path = ["index.html"]
html_copy_source = False
html_show_sourcelink = False
linkcheck_ignore = [r"http://(127\.0\.0\.1|localhost)", r"https?://[^/]*example\.com"]


def setup(app: Sphinx) -> None:
    """Add the contents while pages are read."""
    app.connect("source-read", _add_contents)


def _add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Append to the first page the pages of each section of docs/README.md, and to the decisions theirs."""
    if name == root_doc:
        app.env.note_dependency(str(LIST))
        listed = LIST.read_text(encoding="utf-8")
        sections = re.split(r"^## (.+)$", listed, flags=re.MULTILINE)[1:]
        source[0] += _list_pages("All pages", ["docs/README"])
        for caption, text in zip(sections[::2], sections[1::2], strict=True):
            source[0] += _list_pages(caption, [normpath(f"docs/{page}") for page in PAGE.findall(text)])
        source[0] += _list_pages("The project", ["CHANGELOG", "CONTRIBUTING", "SECURITY", "benchmarks/data/SOURCE"])
    elif name == "docs/decisions/README":
        source[0] += _list_pages("Decisions", PAGE.findall(source[0]))


def _list_pages(caption: str, pages: list[str]) -> str:
    """Return the directive that lists the pages at the side of the site."""
    return "\n\n".join(["", f"```{{toctree}}\n:hidden:\n:caption: {caption}\n", "\n".join(pages) + "\n```\n"])
