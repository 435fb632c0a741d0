"""Reading of one agent file, from bytes on disk to a validated AgentFile. All errors become AgentInvalid."""

import re
import stat
from pathlib import Path

import yaml
from pydantic import ValidationError

from throughline.agents.validation_errors import format_errors, show, show_name
from throughline.agents.yaml_schema import AgentFile
from throughline.domain.errors import AgentInvalid

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
