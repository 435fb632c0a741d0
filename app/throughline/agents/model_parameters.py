"""The section `parameters` of an agent file: what is sent with every call of the agent's model."""

import json
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from throughline.agents.section import Section
from throughline.domain.model_parameters import ModelParameters

MOST_HEADERS = 20
MOST_BODY_BYTES = 20_000
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
HEADER_VALUE = re.compile(r"[ -~]{1,1000}")
OUR_HEADERS = frozenset({
    "accept",
    "api-key",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "x-api-key",
})
"""Headers that an agent file may not set, because the service or the provider's package sets them.

A key belongs into the environment variable that `api_key_env` names.
"""

OUR_MEMBERS = frozenset({
    "function_call",
    "functions",
    "input",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "stream",
    "stream_options",
    "system",
    "tool_choice",
    "tools",
})
"""Members of the request's JSON body that an agent file may not set, because the service sets them."""


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"has the name {name[:40]!r}, which is no name of an HTTP header")
        if name.lower() in OUR_HEADERS:
            raise ValueError(f"has {name}, which the service sets itself; a key's variable is named by api_key_env")
        if not HEADER_VALUE.fullmatch(value):
            raise ValueError(
                f"has a value for {name} with other characters than printable ASCII, or over 1,000 of them"
            )
    if len(headers) > MOST_HEADERS:
        raise ValueError(f"has {len(headers)} headers; at most {MOST_HEADERS} are allowed")
    return headers


def _check_body(body: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if taken := sorted(OUR_MEMBERS & body.keys()):
        raise ValueError(f"has {', '.join(taken)}, which the service sets itself")
    if fields := sorted(ParametersSection.model_fields.keys() & body.keys()):
        raise ValueError(f"has {', '.join(fields)}: write it beside `body`, as parameters.{fields[0]}")
    try:
        size = len(json.dumps(body, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        raise ValueError("has a value that JSON does not know, such as a date; put it in quotes") from error
    if size > MOST_BODY_BYTES:
        raise ValueError(f"has {size} bytes as JSON; at most {MOST_BODY_BYTES} are allowed")
    return body


class ParametersSection(Section):
    """`parameters`: values sent with each model call. What is not written is not sent: the provider's default holds."""

    temperature: float | None = Field(
        None, ge=0, le=2, allow_inf_nan=False, description="How much chance there is in the answer."
    )
    top_p: float | None = Field(
        None, gt=0, le=1, allow_inf_nan=False, description="Share of the likeliest tokens that are chosen from."
    )
    seed: int | None = Field(
        None, ge=-(2**63), lt=2**63, description="Start of the random choices, so that answers may be repeated."
    )
    stop: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        default_factory=list, max_length=4, description="Texts at which the answer ends."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="How long the model thinks; which of the words it takes, the model decides."
    )
    parallel_tool_calls: bool | None = Field(
        None, description="Whether a step may call several tools; sent only with tools."
    )
    include_thoughts: bool | None = Field(None, description="Whether Gemini sends its thoughts as text.")
    return_reasoning: bool | None = Field(
        None, description="Whether the steps of a run go back with their `reasoning_content`."
    )
    headers: Annotated[dict[str, str], AfterValidator(_check_headers)] = Field(
        default_factory=dict,
        description=f"Up to {MOST_HEADERS} further HTTP headers, such as `{{X-Team: search}}`; keys belong in "
        "`api_key_env`.",
    )
    body: Annotated[dict[str, JsonValue], AfterValidator(_check_body)] = Field(
        default_factory=dict,
        description="Further members of the request, such as `{top_k: 20}` or vLLM's `chat_template_kwargs`.",
    )

    def read(self) -> ModelParameters:
        """Return the parameters as the rest of the service uses them."""
        return ModelParameters(**{**self.model_dump(), "stop": tuple(self.stop)})
