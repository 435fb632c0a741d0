"""Overrides: what a request changes of its session's agent for one turn, stored with the run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from throughline.domain.json_types import JsonObject


class OverrideField(StrEnum):
    """A field of an agent that a request may override, if the agent allows it."""

    MODEL = "model"
    TEMPERATURE = "temperature"
    INSTRUCTIONS = "instructions"
    RESPONSE_FORMAT = "response_format"


NO_TOOLS, ANY_TOOL = "none", "required"
"""Tool choices that forbid tools, and that demand any of them, as OpenAI's API names them."""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The JSON schema that an answer must fit.

    `name`, `description` and `strict` are sent to providers that take a schema, as OpenAI's API defines them.
    """

    schema: JsonObject
    name: str = "answer"
    description: str = ""
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """The overrides of one request; what is not given stays the agent's.

    `instructions` are appended to the system prompt. `max_output_tokens` limits each answer further than the reserve.
    `tool_choice` says for the first model call whether tools may or must be called: NO_TOOLS, ANY_TOOL or a tool's
    name. `allowed_tools` are the names of the only tools that this call is sent, None for all. Every agent allows these
    three.

    `is_lenient`: the client cannot know what the agent allows. What the agent does not allow is then lowered to what
    every agent may take, unless its file is strict.
    """

    model: str | None = None
    temperature: float | None = None
    instructions: str | None = None
    response_format: ResponseFormat | None = None
    max_output_tokens: int | None = None
    tool_choice: str | None = None
    allowed_tools: tuple[str, ...] | None = None
    is_lenient: bool = False

    @property
    def chosen_tools(self) -> tuple[str, ...]:
        """The names of the tools that the request chooses, empty if it names none."""
        if self.tool_choice is None or self.tool_choice in {NO_TOOLS, ANY_TOOL}:
            return self.allowed_tools or ()
        return (self.tool_choice,)

    def leniently(self) -> "Overrides":
        """Return the overrides as those of a client that cannot know what the agent allows."""
        return replace(self, is_lenient=True) if any(self.given()) else self

    def given(self) -> Iterator[OverrideField]:
        """Yield the names of the fields that are not None and that the agent has to allow."""
        for name in OverrideField:
            if getattr(self, name) is not None:
                yield name


NO_OVERRIDES = Overrides()
