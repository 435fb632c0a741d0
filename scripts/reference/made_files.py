"""All files that are made from the code, wholly or in parts, with the text that they should have."""

from collections.abc import Mapping
from pathlib import Path

from scripts.reference.agent_file import agent_file_parts
from scripts.reference.command_line import commands_parts, options_parts
from scripts.reference.errors import error_parts
from scripts.reference.events import events_parts
from scripts.reference.made_parts import replace_parts
from scripts.reference.metrics import metrics_parts
from scripts.reference.routes import routes_parts
from scripts.reference.settings import environment_example, settings_parts

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def made_files() -> dict[Path, str]:
    """Return the text of each made file by its path.

    Raises ValueError if a page does not have exactly the parts that are made for it.
    """
    pages = {DOCS / "reference" / name: _page(name, parts) for name, parts in _parts().items()}
    return {**pages, ROOT / ".env.example": environment_example()}


def _parts() -> dict[str, Mapping[str, str]]:
    return {
        "errors.md": error_parts(DOCS),
        **settings_parts(),
        **agent_file_parts(),
        "rest-routes.md": routes_parts(),
        "events.md": events_parts(),
        "metrics.md": metrics_parts(),
        "command-line.md": commands_parts(),
        "command-line-options.md": options_parts(),
    }


def _page(name: str, parts: Mapping[str, str]) -> str:
    return replace_parts((DOCS / "reference" / name).read_text(encoding="utf-8"), parts)
