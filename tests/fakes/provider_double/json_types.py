"""JSON as the double meets it: whatever a client sends."""

from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # parsed JSON from outside: checked by hand, as the real service does
