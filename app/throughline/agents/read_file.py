"""Reading of one agent file, from bytes on disk to a validated AgentFile. All errors become AgentInvalid."""

import difflib
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError

from throughline.agents.context_schema import ContextSection, field_names
from throughline.agents.yaml_schema import AgentFile, section_at
from throughline.domain.errors import AgentInvalid
from throughline.domain.message import clean_text

_OTHER_NAMES = {
    "auto_summarize": "auto_compact",
    "importance": "importance_weights",
    "keep_recent": "keep keep_last_n messages_to_keep preserve_recent",
    "max_messages_before_summary": "max_messages",
    "min_score_threshold": "importance_threshold min_score",
    "prune.keep_last": "keep_tool_uses",
    "prune.max_output_bytes": "max_output_bytes",
    "prune.min_freed": "clear_at_least",
    "prune.start": "clear_tool_uses",
    "response_reserve": "max_output_tokens max_response_tokens reserve_tokens",
    "strategy": "summary_strategy",
    "summarize_chunk_size": "chunk_size trim_tokens_to_summarize",
    "summary.instructions": "custom_instructions summary_instructions summary_prompt",
    "summary.max_tokens": "summary_max_tokens",
    "summary.model": "context_summary_model summarization_model summary_model",
    "summary.style": "summary_style",
    "target": "target_usage",
    "token_counter": "tokenizer",
    "usage_threshold": "compaction_threshold context_usage_threshold threshold",
    "usage_threshold, max_messages_before_summary or max_tokens_before_summary": "trigger",
    "window": "context_limit context_window max_input_tokens token_limit",
    "window or summary.max_tokens": "max_tokens",
}
OTHER_NAMES = {other: name for name, others in _OTHER_NAMES.items() for other in others.split()}
"""Names that other libraries and services use for the fields of `context`, each with the field's name here.

Such a name is refused, because its unit or default may differ. `docs/reference/option-names.md` lists them all.
"""

MAX_SHOWN_CHARACTERS = 80
MAX_COMPLAINTS = 20

SECRET_FIELDS = frozenset({"api_key_env", "env", "headers", "oauth"})
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
    "graph": "must be a graph of yours as module:attribute",
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


MAX_FILE_BYTES = 256 * 1024
MOST_SHOWN = 80
NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
OTHER_BASE = re.compile(r"\A[-+]?(0[0-7_]+\Z|[0-9_]+:)")
"""Numbers in base 8 (010) or base 60 (1:30) as YAML 1.1 reads them, which nobody means in an agent file."""


def read_agent_file(path: Path) -> AgentFile:
    """Return the content of the file at `path`. Raises AgentInvalid naming file, field, value and what is allowed."""
    content = _parse(path, _read_text(path))
    if content is None:
        raise AgentInvalid(f"{path}: the file is empty; write at least `name: …`")
    if not isinstance(content, dict):
        raise AgentInvalid(f"{path}: {show(content)} is not an agent; write a mapping of fields such as `name: …`")
    try:
        return AgentFile.model_validate(content)
    except ValidationError as error:
        raise AgentInvalid(f"{path}:\n{format_errors(error)}") from error


def _read_text(path: Path) -> str:
    try:
        content = _read_bytes(path)
    except OSError as error:
        raise AgentInvalid(f"{path}: cannot be read ({error.strerror or type(error).__name__})") from error
    if len(content) > MAX_FILE_BYTES:
        raise AgentInvalid(f"{path}: the file is too large; an agent file has at most {MAX_FILE_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentInvalid(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error


def _read_bytes(path: Path) -> bytes:
    """Return the content, at most one byte more than allowed. Only regular files are read: a pipe may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise AgentInvalid(f"{path}: is not a regular file; replace it with a file, or move it out of AGENTS_DIR")
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def _parse(path: Path, text: str) -> object:
    try:
        _check_nodes(path, yaml.compose(text, Loader=yaml.SafeLoader))
        parsed: object = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        raise AgentInvalid(f"{path}: {_at(error.problem_mark)}: {error.problem or 'not valid YAML'}") from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise AgentInvalid(f"{path}: line {line}: a character is not allowed in YAML; remove it") from error
    except RecursionError as error:
        raise AgentInvalid(f"{path}: the file is nested too deeply; remove some levels") from error
    except ValueError as error:  # an invalid number or date
        raise AgentInvalid(f"{path}: YAML cannot read a value ({error}); quote it if it is meant as text") from error
    return parsed


def _check_nodes(path: Path, root: yaml.Node | None) -> None:
    """Refuse content that safe_load would accept silently: a field written twice, a number in another base.

    Aliases are refused too, because they can grow without bound.
    """
    seen: set[int] = set()
    waiting = [("", root)] if root is not None else []
    while waiting:
        field, node = waiting.pop()
        if id(node) in seen:
            raise AgentInvalid(
                f"{path}: {_at(node.start_mark)}: an alias (`*name`) refers to this value, which is not allowed; "
                "write the value out"
            )
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys(path, node)
            waiting += [(_inner(field, key), value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(field, value) for value in node.value]
        else:
            _check_number(path, field, node)


def _check_number(path: Path, field: str, node: yaml.Node) -> None:
    if node.tag in NUMBERS and OTHER_BASE.match(node.value):
        read: object = yaml.safe_load(node.value)
        raise AgentInvalid(
            f"{path}: {_at(node.start_mark)}: {field or 'the file'}: YAML reads {node.value[:MOST_SHOWN]} as {read}"
            "; write the number in plain digits, or quote it if it is meant as text"
        )


def _inner(field: str, key: yaml.Node) -> str:
    """Return the dotted name of the field `key` in the mapping at `field`."""
    return f"{field}.{show_name(str(key.value))}".removeprefix(".")


def _check_keys(path: Path, mapping: yaml.MappingNode) -> None:
    keys: set[str] = set()
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode) and key.value in keys:
            raise AgentInvalid(f"{path}: {_at(key.start_mark)}: {show_name(key.value)} is written twice; write it once")
        keys.add(str(key.value))


def _at(mark: yaml.Mark | None) -> str:
    return "line 1" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
