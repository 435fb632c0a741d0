"""JSON shape of the overrides of a request. REST and the Python client read it; unknown fields are refused."""

import json
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from throughline.context.policy import MAX_INSTRUCTIONS
from throughline.domain.message import is_blank
from throughline.domain.prompt import Overrides, ResponseFormat, ToolSpec

STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


def _check_not_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError("is blank; write instructions, or leave it out")
    return text


Instructions: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=MAX_INSTRUCTIONS), AfterValidator(_check_not_blank)
]


class JsonSchemaIn(BaseModel):
    """A JSON schema that the answer must fit, in the form of OpenAI's API."""

    model_config = STRICT

    schema_: dict[str, JsonValue] = Field(
        alias="schema", description="a subset of JSON Schema 2020-12; references inside the schema only"
    )
    name: str = Field("answer", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="default: answer")
    description: str = Field("", max_length=1_000)
    strict: bool | None = Field(None, description="sent to providers that know it")


class ResponseFormatIn(BaseModel):
    """The form of the answer. The service checks the answer, and asks the model once more if it does not fit."""

    model_config = STRICT

    type: Literal["json_schema"]
    json_schema: JsonSchemaIn

    def read(self) -> ResponseFormat:
        """Return the format as a domain value."""
        given = self.json_schema
        return ResponseFormat(given.schema_, given.name, given.description, given.strict)


class OverridesIn(BaseModel):
    """What the request changes of the agent for its turn. The agent's file says what it allows."""

    model_config = STRICT

    model: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="one of the agent's `override_models`"
    )
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    instructions: Instructions | None = Field(None, description="appended to the system prompt")
    response_format: ResponseFormatIn | None = None
    max_output_tokens: int | None = Field(
        None, ge=1, le=10**9, description="limits each answer; allowed by every agent"
    )

    def read(self) -> Overrides:
        """Return the overrides as a domain value."""
        wanted = None if self.response_format is None else self.response_format.read()
        return Overrides(self.model, self.temperature, self.instructions, wanted, self.max_output_tokens)


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
