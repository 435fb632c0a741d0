"""JSON shape of the tools that a request brings and its client runs. REST and the Python client read it."""

import json
from collections.abc import Sequence
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, JsonValue

from throughline.domain.prompt import ToolSpec
from throughline.wire.overrides import STRICT

MOST_TOOLS = 128
MOST_BYTES = 200_000


def _no_parameters() -> dict[str, JsonValue]:
    return {"type": "object", "properties": {}}


class ClientToolIn(BaseModel):
    """A tool that the client runs: the turn waits for its result."""

    model_config = STRICT

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = Field("", max_length=4_000, description="what the model knows of the tool")
    parameters: dict[str, JsonValue] = Field(
        default_factory=_no_parameters, description="a JSON schema of type `object`"
    )

    def read(self) -> ToolSpec:
        """Return the tool as a domain value."""
        return ToolSpec(self.name, self.description, self.parameters)


def check_client_tools(tools: list[ClientToolIn]) -> list[ClientToolIn]:
    """Return the tools. Raises ValueError for a repeated name, parameters of no object, or too many bytes together."""
    names = [tool.name for tool in tools]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"name {', '.join(repeated)} more than once; give each tool its own name")
    for tool in tools:
        if tool.parameters.get("type") != "object":
            raise ValueError(f"have a tool {tool.name} whose parameters are not a JSON schema of type object")
    size = len(json.dumps([tool.model_dump() for tool in tools], ensure_ascii=False).encode())
    if size > MOST_BYTES:
        raise ValueError(f"have {size} bytes together; at most {MOST_BYTES} are allowed")
    return tools


ClientTools: TypeAlias = Annotated[list[ClientToolIn], Field(max_length=MOST_TOOLS), AfterValidator(check_client_tools)]


def read_client_tools(tools: Sequence[ClientToolIn]) -> tuple[ToolSpec, ...]:
    """Return the tools as domain values, in their order."""
    return tuple(tool.read() for tool in tools)
