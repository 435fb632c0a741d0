"""The tools of the service, as an agent's preparation and a turn need them."""

from collections.abc import Sequence
from typing import Protocol

from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome


class Tools(Protocol):
    """The tools agents may name."""

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specs of the named tools. Raises SettingInvalid for an unknown name."""

    def is_repeatable(self, name: str) -> bool:
        """Whether the tool may be called again where its first outcome is unknown (True for unknown tools)."""

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        """Run one call. Unknown tool, bad arguments, exceptions and slowness become error outcomes."""
