"""Texts for the errors of an agent file, in the terms of the file: field, value, and allowed values."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pydantic import ValidationError

from throughline.agents.context_schema import ContextSection
from throughline.agents.option_aliases import OTHER_NAMES
from throughline.agents.section import field_names
from throughline.agents.yaml_schema import section_at
from throughline.domain.text import clean_text

MAX_SHOWN_CHARACTERS = 80
MAX_COMPLAINTS = 20

SECRET_FIELDS = frozenset({"api_key_env"})
"""Fields that may contain a key by mistake. Their values are not repeated in errors."""

Context: TypeAlias = dict[str, Any]  # Any: what pydantic puts into an error depends on its kind
Details: TypeAlias = Mapping[str, Any]  # Any: pydantic's ErrorDetails, of which only its core knows the type

KINDS: dict[str, Callable[[Context], str]] = {
    "bool_type": lambda _: "must be true or false",
    "dict_type": lambda _: "must be a mapping of fields",
    "enum": lambda context: f"is not allowed; allowed: {context['expected'].replace(chr(39), '')}",
    "literal_error": lambda context: f"is not allowed; allowed: {context['expected'].replace(chr(39), '')}",
    "finite_number": lambda _: "must be a number",
    "float_type": lambda _: "must be a number",
    "greater_than": lambda context: f"must be above {context['gt']}",
    "greater_than_equal": lambda context: f"must be at least {context['ge']}",
    "int_type": lambda _: "must be a whole number",
    "less_than": lambda context: f"must be below {context['lt']}",
    "less_than_equal": lambda context: f"must be at most {context['le']}",
    "list_type": lambda _: "must be a list",
    "model_type": lambda _: "must be a mapping of fields",
    "string_too_short": lambda context: f"must have at least {context['min_length']} character",
    "too_long": lambda context: f"must have at most {context['max_length']} items",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "string_type": lambda _: "must be text (quote it if it looks like something else)",
    "value_error": lambda context: str(context["error"]),
}
PATTERNS = {
    "name": "must match [a-z][a-z0-9_-]{0,63}: a small letter, then small letters, digits, '_' or '-'",
    "tools": "must be a tool's name or module:attribute",
    "token_counter": "is not allowed; allowed: tiktoken, tiktoken:<encoding>, chars, transformers:<name or path>, "
    "module:function",
    "pre_compact": "must be a function of yours as module:function",
    "model": "must be a model's name without white space, such as openai:gpt-4o",
}


def format_errors(error: ValidationError) -> str:
    """Return one line for each of the first MAX_COMPLAINTS errors, and the number of further ones.

    The lines are in the order of the fields in the schema.
    """
    found = error.errors(include_url=False)
    lines = [_complaint(details) for details in found[:MAX_COMPLAINTS]]
    if len(found) > MAX_COMPLAINTS:
        lines.append(f"and {len(found) - MAX_COMPLAINTS} more")
    return "\n".join(f"  {line}" for line in lines)


def show(value: object) -> str:
    """Return `value` shortened and on one line, without the credentials of an address."""
    if isinstance(value, str):
        value = _without_credentials(value)
    text = clean_text(repr(value))
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"


def _without_credentials(address: str) -> str:
    """Return the address without the text between the first `//` and the last `@` after it."""
    scheme, slashes, rest = address.partition("//")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


def _complaint(details: Details) -> str:
    path, kind = details["loc"], details["type"]
    if kind == "missing":
        return f"{_dotted(path)}: missing; write it"
    if kind in {"extra_forbidden", "invalid_key"}:
        return f"{_dotted(path)}: {_unknown(path)}"
    problem = _problem(path, kind, details)
    if SECRET_FIELDS.intersection(path) or (kind == "value_error" and isinstance(details["input"], dict)):
        return f"{_dotted(path)}: {problem}"
    return f"{_dotted(path)}: {show(details['input'])} {problem}"


def _problem(path: tuple[str | int, ...], kind: str, details: Details) -> str:
    if kind == "string_pattern_mismatch":
        field = next(step for step in reversed(path) if isinstance(step, str))
        return PATTERNS[field]
    known = KINDS.get(kind)
    return known(details.get("ctx", {})) if known else str(details["msg"]).lower()


def _unknown(path: tuple[str | int, ...]) -> str:
    """Return the error text for an unknown field, with the field that may have been meant."""
    name, allowed = str(path[-1]), field_names(section_at(path[:-1]))
    if name in allowed:
        return "is another name of a field that the file has too: write only one of them"
    if path[:-1] in {(), ("context",)} and name in OTHER_NAMES:
        return f"no such field; write context.{OTHER_NAMES[name]}"
    if not path[:-1] and name in field_names(ContextSection):
        return f"no such field; write context.{name}"
    near = difflib.get_close_matches(name, allowed, n=3)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"no such field; {meant}allowed: {', '.join(allowed)}"


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) and text else f".{step}"
    return show_name(text.removeprefix("."))


def show_name(name: str) -> str:
    """Return a name from the file, made printable and cut to MAX_SHOWN_CHARACTERS."""
    text = clean_text(name)[:MAX_SHOWN_CHARACTERS]
    return text if text.isprintable() else repr(text)
