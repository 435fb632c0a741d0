"""The interface to the service's tools, for agent preparation and turns."""

from collections.abc import Sequence
from typing import Protocol

from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome


class Tools(Protocol):
    """The tools that agents may use."""

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specifications of the named tools. Raises SettingInvalid for an unknown name."""

    def is_repeatable(self, name: str) -> bool:
        """Whether the tool may be called again if its first result is unknown (True for unknown tools)."""

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        """Run one call. Unknown tools, bad arguments, exceptions and timeouts become error results."""
