"""Reading what the service answers as the shapes of the wire."""

import re
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from throughline.cli.failures import UnexpectedReply
from throughline.wire.shape import Shape

Reply = TypeVar("Reply")
Exported: TypeAlias = dict[str, object]
"""A value as the service renders it, handed on as it is."""

BEFORE_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ADAPTERS: dict[type[object], TypeAdapter[Any]] = {}  # built once per type: Any, since each has its own


class ExportedPage(Shape):
    """A page of a list whose items are handed on as they are."""

    data: list[Exported]
    next_cursor: str | None


def read_json(reply_type: type[Reply], text: str | bytes) -> Reply:
    """Return `text` as a `reply_type`. Raises UnexpectedReply where it is something else."""
    if reply_type not in _ADAPTERS:
        _ADAPTERS[reply_type] = TypeAdapter(reply_type)
    try:
        read: Reply = _ADAPTERS[reply_type].validate_json(text)
    except ValidationError as error:
        raise _unexpected(reply_type, error) from None
    return read


def _unexpected(reply_type: type[object], error: ValidationError) -> UnexpectedReply:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the whole body"
    name = BEFORE_CAPITAL.sub(" ", reply_type.__name__.removesuffix("Out")).lower()
    return UnexpectedReply(
        f"The service's answer cannot be read as {name} "
        f"({where}: {first['msg']}). Check that the address is a Throughline service of the same version."
    )
