"""The settings: the made parts of their pages, and `.env.example`."""

import re
import textwrap
from collections.abc import Iterator, Mapping

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scripts.reference.markdown import anchor, code, table
from scripts.reference.schema_types import Schema, allowed_values, range_in_words, type_in_words
from throughline.assembly.env_file import PROGRAM_SETTINGS
from throughline.assembly.front_ends import settings_sections
from throughline.settings.all_settings import SECTIONS

PAGES: Mapping[str, tuple[str, ...]] = {
    "settings-service.md": ("PostgreSQL", "HTTP", "Turns", "Retention", "Traces", "Logs"),
    "settings-agents.md": (
        "Models",
        "Search by meaning",
        "Agents and tools",
        "Console",
        "MCP server",
        "Slack",
        "History search",
    ),
}
"""The subjects of each page."""

ALL_SECTIONS = {**SECTIONS, **{section.subject: section for section in settings_sections()}}

MARKED = re.compile(r"(?<![`\w/])(?:[A-Z][A-Z_]+[A-Z](?![`\w])|[a-z]+://[^\s;]*[^\s;.:,])")
"""Names of settings, and addresses: code on a page, and as they are in `.env.example`."""

WIDTH = 120
INTRODUCTION = """\
Every setting with its default, or with a sample value where the comment says what an unset one means. Copy this \
file to `.env` beside it, take the # away before what you change; variables of the environment win over the file, \
and an empty one is as if it were not set. The keys of model providers (OPENAI_API_KEY, ANTHROPIC_API_KEY, …) and keys \
that a setting or an agent file names (…_API_KEY_ENV, api_key_env) may stand here too. Unknown names are refused. \
Contributors: `make reference` makes this file from app/throughline/settings/."""
COMPOSE = """

# --- docker compose only ----------------------------------------------------------------------------------------------
# Password of the PostgreSQL in docker-compose.yml, which only the other services can reach.
# POSTGRES_PASSWORD=throughline
"""


def settings_parts() -> dict[str, dict[str, str]]:
    """Return the parts of each page of settings: a table for each subject, by its anchor."""
    return {
        page: {
            anchor(subject): table(("setting", "value", "default", "meaning"), _rows(ALL_SECTIONS[subject]))
            for subject in subjects
        }
        for page, subjects in PAGES.items()
    }


def environment_example() -> str:
    """Return `.env.example`: each setting with its meaning, and its default or a sample as a comment."""
    sections = (_example_section(subject, section) for subject, section in ALL_SECTIONS.items())
    return "\n".join([_comment(INTRODUCTION), *sections]) + COMPOSE


def _rows(section: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, info, schema in _fields(section):
        meaning = MARKED.sub(_as_code, info.description or "")
        yield code(name), type_in_words(schema, {}), code(_written(info.default)), meaning


def _example_section(subject: str, section: type[BaseModel]) -> str:
    lines = ["", f"# --- {subject} ".ljust(WIDTH, "-")]
    for name, info, schema in _fields(section):
        sample = info.examples[0] if info.examples else _written(info.default)
        lines += [_comment(f"{info.description} {_allowed(schema)}"), f"# {name}={sample}"]
    return "\n".join(lines)


def _fields(section: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, Schema]]:
    """Yield the variable, the field and the schema of each setting of a section."""
    schemas = section.model_json_schema()["properties"]
    for name, info in section.model_fields.items():
        yield name.upper(), info, schemas[name]


def _allowed(schema: Schema) -> str:
    """Return a sentence with the allowed range or words; '' for texts of any kind and for switches."""
    form = schema["anyOf"][0] if "anyOf" in schema else schema
    if form.get("type") == "boolean":
        return ""
    allowed = ", ".join(allowed_values(form)) or range_in_words(form)
    return f"Allowed: {allowed}." if allowed else ""


def _written(default: object) -> str:
    """Return a default as `.env` has it: '' for none."""
    if isinstance(default, bool):
        return str(default).lower()
    return "" if default in {None, ()} else str(default)


def _as_code(found: re.Match[str]) -> str:
    """Return a URL or the name of a setting as Markdown code, any other match unchanged."""
    is_code = "://" in found[0] or found[0].lower() in PROGRAM_SETTINGS.model_fields
    return code(found[0]) if is_code else found[0]


def _comment(text: str) -> str:
    prefix = "# "
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=prefix,
        subsequent_indent=prefix,
        break_long_words=False,
        break_on_hyphens=False,
    )
