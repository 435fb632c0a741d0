"""The made parts of the page of agent files: a table of fields for each section."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum

from pydantic.fields import FieldInfo

from scripts.reference.markdown import code, table
from scripts.reference.schema_types import type_in_words
from throughline.agents.context_schema import (
    STRATEGY_OF,
    ContextSection,
    ImportanceSection,
    PruneSection,
    Section,
    SummarySection,
)
from throughline.agents.yaml_schema import AgentFile, BudgetSection, OAuthSection, ParametersSection, ServerSection
from throughline.context.policy import ContextPolicy, ImportanceWeights, PrunePolicy, SummaryPolicy

POLICIES: Mapping[type[Section], type] = {
    ContextSection: ContextPolicy,
    PruneSection: PrunePolicy,
    SummarySection: SummaryPolicy,
    ImportanceSection: ImportanceWeights,
}
"""The dataclasses whose docstrings describe those fields that have no text of their own for the file."""

PAGES: Mapping[str, Mapping[str, Mapping[str, type[Section]]]] = {
    "agent-file.md": {
        "agent": {"": AgentFile, "daily_budget.": BudgetSection},
        "parameters": {"": ParametersSection},
        "context": {"": ContextSection},
    },
    "agent-file-servers.md": {"server": {"": ServerSection, "oauth.": OAuthSection}},
    "agent-file-context.md": {
        "prune": {"": PruneSection},
        "summary": {"": SummarySection},
        "importance": {"": ImportanceSection},
    },
}
"""The tables of each page, and the sections of each table by what stands before the names of their fields."""


def agent_file_parts() -> dict[str, dict[str, str]]:
    """Return the tables of fields of each page on agent files. Raises ValueError for a field without a meaning."""
    return {page: {name: _table(sections) for name, sections in tables.items()} for page, tables in PAGES.items()}


def _table(sections: Mapping[str, type[Section]]) -> str:
    columns = ("field", "value", "default", "meaning")
    return table(columns, (row for prefix, section in sections.items() for row in _rows(prefix, section)))


def _rows(prefix: str, section: type[Section]) -> Iterator[tuple[str, ...]]:
    schema = section.model_json_schema()
    definitions, properties = schema.get("$defs", {}), schema["properties"]
    told = attribute_docstrings(POLICIES[section]) if section in POLICIES else {}
    for name, info in section.model_fields.items():
        if isinstance(info.default, Section):
            continue
        meaning = info.description or told.get(name)
        if not meaning:
            raise ValueError(f"{section.__name__}.{name} has no description")
        yield (
            code(f"{prefix}{name}"),
            type_in_words(properties[name], definitions),
            _default(info),
            meaning + _only_strategy(section, name),
        )


def attribute_docstrings(owner: type) -> dict[str, str]:
    """Return the first paragraph of the docstring of each field of a class; fields without one are left out."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                found[name] = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
            case _:
                continue
    return found


def _only_strategy(section: type[Section], name: str) -> str:
    if section is not ContextSection or name not in STRATEGY_OF:
        return ""
    return f" Only with the strategy {code(STRATEGY_OF[name])}."


def _default(info: FieldInfo) -> str:
    """Return a field's default as YAML in Markdown code, `required` for a required field, '' for an empty default."""
    if info.is_required():
        return "required"
    default = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, bool):
        return code(str(default).lower())
    if default is None or default in ([], {}, ""):
        return ""
    return code(default.value if isinstance(default, Enum) else default)
