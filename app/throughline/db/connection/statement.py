"""SQL with named parameters, as every intent is written, and the rows that come back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]  # Any: a column has the type that its reader knows
"""A row by the names of its columns: asyncpg's Record."""

_NAMED = re.compile(r"(?<![:\w]):(\w+)")
"""`:name`, but not the type in `value::type`."""


@dataclass(frozen=True, slots=True)
class Statement:
    """`text` is what PostgreSQL takes, with `$1`, `$2`…; `names` says whose value each of them is."""

    text: str
    names: tuple[str, ...]

    def arguments(self, parameters: Mapping[str, object]) -> list[object]:
        """Return the values in their order. Raises KeyError where one is missing."""
        return [parameters[name] for name in self.names]


def statement(written: str) -> Statement:
    """Return the statement that is written with `:name` for each parameter."""
    names = tuple(dict.fromkeys(_NAMED.findall(written)))
    places = {name: f"${number}" for number, name in enumerate(names, start=1)}
    return Statement(_NAMED.sub(lambda found: places[found[1]], written), names)
