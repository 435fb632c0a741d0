"""SQL statements with named parameters, the form in which all repositories write them, and result rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]  # Any: the reader of a column knows its type
"""A result row by column name: asyncpg's Record."""

_NAMED = re.compile(r"(?<![:\w]):(\w+)")
"""A `:name` parameter, but not the type in `value::type`."""


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement. `text` has the parameters `$1`, `$2`…; `names` lists their names in that order.

    A connection keeps a statement prepared if `is_cached`. From the sixth execution on, PostgreSQL may then run it by a
    plan that it made without looking at the parameters. A statement that is not cached is planned for its parameters at
    each execution.
    """

    text: str
    names: tuple[str, ...]
    is_cached: bool = True

    def arguments(self, parameters: Mapping[str, object]) -> list[object]:
        """Return the parameters' values in the order of `names`. Raises KeyError if one is missing."""
        return [parameters[name] for name in self.names]


def statement(written: str) -> Statement:
    """Return the statement for SQL text with `:name` parameters, which become `$1`, `$2`…."""
    names = tuple(dict.fromkeys(_NAMED.findall(written)))
    places = {name: f"${number}" for number, name in enumerate(names, start=1)}
    return Statement(_NAMED.sub(lambda found: places[found[1]], written), names)
