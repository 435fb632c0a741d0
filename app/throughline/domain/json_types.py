"""Types for JSON values."""

from collections.abc import Mapping
from typing import TypeAlias

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"
JsonObject: TypeAlias = Mapping[str, JsonValue]
