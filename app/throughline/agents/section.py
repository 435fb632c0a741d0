"""Base class of the sections of an agent file, and the names under which their fields may be written."""

import re
from dataclasses import asdict, fields
from enum import Enum
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from throughline.context.policy import Range

_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
_WANTED = "must be an address such as http://127.0.0.1:8080/v1"


def check_base_url(address: str) -> str:
    """Return `address`. Raises ValueError unless it is an http(s) address with a host and without white space."""
    if _SPACE_OR_CONTROL.search(address):
        raise ValueError(f"{_WANTED}, without white space")
    try:
        parts = urlsplit(address)
        is_complete = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # brackets that do not close, or a port that is no number
        raise ValueError(_WANTED) from error
    if not is_complete:
        raise ValueError(_WANTED)
    return address


def check_variable(name: str) -> str:
    """Return `name`. Raises ValueError unless it can be the name of an environment variable.

    A key that was written here by mistake usually fails this check.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError(
            "must be the name of the environment variable that holds the key, in capitals (such as GATEWAY_API_KEY), "
            "never the key itself"
        )
    return name


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


class Section(BaseModel):
    """Base class of the mappings in an agent file. Unknown fields are refused; empty fields count as missing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in given.items() if value is not None or key not in field_names(cls)}


def field_names(section: type[BaseModel]) -> tuple[str, ...]:
    """Return the names under which a section's fields may be written, aliases included."""
    names: list[str] = []
    for name, info in section.model_fields.items():
        alias = info.validation_alias
        names += [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]
    return tuple(names)
