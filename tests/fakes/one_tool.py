"""A stage's tools where there is one, which keeps the idempotency keys it was called with."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from throughline.domain.message import ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.tool import ToolContext, ToolOutcome


@dataclass
class OneTool:
    """The tool `name`, which returns `result`; with `hangs_at_first` its first call never comes back."""

    name: str
    result: str
    repeatable: bool
    hangs_at_first: bool = False
    keys: list[str] = field(default_factory=list)

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        del names
        return (ToolSpec(self.name, "Does it.", {"type": "object", "properties": {}}),)

    def is_repeatable(self, name: str) -> bool:
        del name
        return self.repeatable

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        del call
        self.keys.append(context.idempotency_key)
        if self.hangs_at_first and len(self.keys) == 1:
            await asyncio.Event().wait()
        return ToolOutcome(self.result, is_error=False)
