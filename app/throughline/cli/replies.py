"""Parsing of the service's replies as the shapes of `throughline.wire`."""

import re
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from throughline.cli.failures import UnexpectedReply
from throughline.wire.json_shape import Shape

Reply = TypeVar("Reply")
Item = TypeVar("Item", covariant=True)  # noqa: PLC0105  # a page is read only
Exported: TypeAlias = dict[str, object]
"""A session or message as the JSON object that the service sent, passed on unchanged to an export."""

BEFORE_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ADAPTERS: dict[type[object], TypeAdapter[Any]] = {}  # built once per type; Any, because the types differ


class Page(Protocol[Item]):
    """A page of a list. The last page has no cursor."""

    @property
    def data(self) -> Sequence[Item]:
        """Items of the page."""

    @property
    def next_cursor(self) -> str | None:
        """Cursor of the next page, None on the last one."""


class ExportedPage(Shape):
    """A page of a list whose items are passed on unchanged."""

    data: list[Exported]
    next_cursor: str | None


def read_json(reply_type: type[Reply], text: str | bytes) -> Reply:
    """Return `text` parsed as a `reply_type`. Raises UnexpectedReply if it has another form."""
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
