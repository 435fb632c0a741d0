"""Reading of requests in OpenAI's form.

What asks for something that this service does not have is refused by name. Other fields are taken and not applied: the
agent's file decides, or there is nothing to decide. Leaving them out changes no answer in kind, and many clients send
them by themselves. The answer names them: in the header NOT_APPLIED_HEADER, and in the member `not_applied` of a
response object, which a WebSocket has alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, Field
from pydantic import JsonValue as JsonField

from throughline.agents.definition import AgentDefinition
from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.prompt import OverrideField, Overrides
from throughline.http.body import read_json, validate
from throughline.http.fields import STRICT
from throughline.http.route_errors import FieldError, InvalidRequest

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field of OpenAI's that this service does not have: why, and the values that mean the same as leaving it out."""

    why: str
    same_as_missing: Sequence[JsonValue] = (None,)


async def read_request(request: Request, model: type[Body], unsupported: Mapping[str, Unsupported]) -> Body:
    """Return the request's body as `model`, without its unsupported fields whose values mean nothing.

    Raises InvalidRequest, which names every unsupported or wrong field, and the other errors of `read_body`.
    """
    return validate_request(await read_json(request), model, unsupported)


def validate_request(given: JsonValue, model: type[Body], unsupported: Mapping[str, Unsupported]) -> Body:
    """Return parsed JSON as `model`, without unsupported fields whose values mean nothing. Raises InvalidRequest."""
    if not isinstance(given, dict):
        return validate(given, model)
    refused = [
        FieldError(name, f"This service does not have it: {unsupported[name].why}. Leave it out.")
        for name, value in given.items()
        if name in unsupported and value not in unsupported[name].same_as_missing
    ]
    if refused:
        raise InvalidRequest(tuple(refused))
    return validate({name: value for name, value in given.items() if name not in unsupported}, model)


NOT_APPLIED_HEADER = "X-Not-Applied"
NOT_APPLIED = "not_applied"
"""Key in a request's echo, and member of a response object, with the names."""

MOST_LISTED = 20
"""Entries that a list among these fields may have."""


@dataclass(frozen=True, slots=True)
class NotApplied:
    """Marks a field that is accepted without effect. `same_as_missing`: values that mean the same as leaving it out."""

    same_as_missing: tuple[JsonField, ...] = ()


Word = Annotated[str, Field(max_length=64)]


def _check_stop(stop: JsonField) -> JsonField:
    texts = stop if isinstance(stop, list) else [stop]
    if stop is not None and not all(isinstance(text, str) for text in texts):
        raise ValueError("must be text, or a list of texts")
    return stop


class SamplingFields(BaseModel):
    """Parameters of a model that both of OpenAI's requests have. Those that other servers know too end the list."""

    model_config = STRICT

    top_p: Annotated[float | None, NotApplied((1,))] = Field(None, ge=0, le=1, allow_inf_nan=False)
    presence_penalty: Annotated[float | None, NotApplied((0,))] = Field(None, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: Annotated[float | None, NotApplied((0,))] = Field(None, ge=-2, le=2, allow_inf_nan=False)
    parallel_tool_calls: Annotated[bool | None, NotApplied((True,))] = None
    service_tier: Annotated[Word | None, NotApplied(("auto", "default"))] = None
    prompt_cache_retention: Annotated[Word | None, NotApplied()] = None
    prompt_cache_options: Annotated[dict[str, JsonField] | None, NotApplied()] = None
    top_k: Annotated[int | None, NotApplied()] = None
    min_p: Annotated[float | None, NotApplied((0,))] = Field(None, ge=0, le=1, allow_inf_nan=False)
    repetition_penalty: Annotated[float | None, NotApplied((1,))] = Field(None, allow_inf_nan=False)

    def not_applied(self) -> tuple[str, ...]:
        """Return the names of the request's fields that are not applied, in the order in which they are declared."""
        return tuple(self._not_applied())

    def _not_applied(self) -> Iterator[str]:
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                value = getattr(self, name)
                if isinstance(mark, NotApplied) and value is not None and value not in mark.same_as_missing:
                    yield name


class ResponseSampling(SamplingFields):
    """What a request for a response may say besides."""

    reasoning: Annotated[dict[str, JsonField] | None, NotApplied(({}, {"effort": None}))] = None
    truncation: Annotated[Word | None, NotApplied(("auto",))] = None
    context_management: Annotated[list[dict[str, JsonField]] | None, NotApplied(([],))] = Field(
        None, max_length=MOST_LISTED
    )
    include: Annotated[list[Word] | None, NotApplied(([],))] = Field(None, max_length=MOST_LISTED)


class ChatSampling(SamplingFields):
    """What a request for a chat completion may say besides."""

    logit_bias: Annotated[dict[str, float] | None, NotApplied(({},))] = None
    seed: Annotated[int | None, NotApplied()] = None
    stop: Annotated[JsonField, AfterValidator(_check_stop), NotApplied(([],))] = None
    reasoning_effort: Annotated[Word | None, NotApplied()] = None
    verbosity: Annotated[Word | None, NotApplied(("medium",))] = None
    prediction: Annotated[dict[str, JsonField] | None, NotApplied()] = None


def not_applied_echo(names: Iterable[str], overrides: Overrides, agent: AgentDefinition) -> JsonObject:
    """Return the member of an echo with the names, and `temperature` if the agent does not allow it; {} without any."""
    is_lowered = overrides.temperature is not None and OverrideField.TEMPERATURE not in agent.overrides
    found: list[JsonField] = [*names, *(["temperature"] if is_lowered else [])]
    return {NOT_APPLIED: found} if found else {}


def not_applied_headers(echo: JsonObject) -> dict[str, str]:
    """Return the header with the names in an echo; {} without any."""
    return name_not_applied(names) if isinstance(names := echo.get(NOT_APPLIED), list) else {}


def name_not_applied(names: Iterable[object]) -> dict[str, str]:
    """Return the header with the names; {} without any."""
    listed = ", ".join(str(name) for name in names)
    return {NOT_APPLIED_HEADER: listed} if listed else {}
