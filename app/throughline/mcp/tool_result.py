"""What a tool of the MCP server returns, as the protocol has it."""

from dataclasses import dataclass

from throughline.domain.run import Run
from throughline.wire.json_shape import JsonDict


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool: values in the shape of its output schema, and texts for a model.

    `unfinished` is a run that the call asked for and that goes on: a client with tasks is given a task for it.
    """

    structured: JsonDict | None
    texts: tuple[str, ...]
    is_error: bool = False
    unfinished: Run | None = None

    def render(self) -> JsonDict:
        """Return the members of a CallToolResult."""
        shown: JsonDict = {"content": [{"type": "text", "text": text} for text in self.texts], "isError": self.is_error}
        if self.structured is not None:
            shown["structuredContent"] = self.structured
        return shown
