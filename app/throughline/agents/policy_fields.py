"""Pydantic fields for agent files and settings, derived from the dataclasses that hold defaults and ranges."""

from dataclasses import asdict, fields
from enum import Enum
from typing import Any, get_type_hints

from pydantic import Field

from throughline.context.policy import Range


def policy_field(owner: type, name: str, **further: Any) -> Any:  # noqa: ANN401  # as pydantic's Field, typed like it
    """Return the pydantic field for `owner.name`: the default and the range of that dataclass field.

    A float must be finite, and an enum is written as its value. `further` adds or replaces arguments of the pydantic
    field. Raises KeyError if `owner` has no field of that name.
    """
    hint = get_type_hints(owner, include_extras=True)[name]
    default: dict[str, Any] = {declared.name: declared.default for declared in fields(owner)}  # Any: each has its own
    return Field(**({"default": default[name]} | _constraints(hint) | further))


def _constraints(hint: object) -> dict[str, Any]:  # Any: as Field takes them
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"strict": False}
    is_float = getattr(hint, "__origin__", hint) is float
    bounds = [asdict(beside) for beside in getattr(hint, "__metadata__", ()) if isinstance(beside, Range)]
    return {"allow_inf_nan": False} | _given(*bounds) if is_float else _given(*bounds)


def _given(*bounds: dict[str, float | None]) -> dict[str, Any]:  # Any: as Field takes them
    return {end: bound for ends in bounds for end, bound in ends.items() if bound is not None}
