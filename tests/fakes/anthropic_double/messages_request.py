"""A `/v1/messages` request, parsed and checked; what is wrong is refused before anything is counted or answered."""

import json
import re
from dataclasses import dataclass

from fakes.anthropic_double.check_messages import check_messages, check_system
from fakes.anthropic_double.check_tools import check_tools
from fakes.anthropic_double.refusals import Refused, missing, not_a, over_limit, too_long
from fakes.anthropic_double.thinking import check_thinking
from fakes.anthropic_double.units import Unit, count_markers, units_of
from fakes.provider_double.json_types import Json
from fakes.provider_double.models import DoubleModel, look_up_model

MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_MARKERS = 4
KNOWN = frozenset({
    *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "stop_sequences"),
    *("temperature", "top_k", "top_p", "metadata", "service_tier", "thinking"),
})
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A request that may be answered. `prompt_tokens` is the double's own count of all it holds."""

    model: DoubleModel
    body: Json
    units: tuple[Unit, ...]
    max_tokens: int
    is_stream: bool
    markers: int

    @property
    def prompt_tokens(self) -> int:
        """Tokens of tools, system prompt and messages, with the opening of the reply."""
        return self.model.counting.reply_tokens + sum(unit.tokens for unit in self.units)


def parse_body(raw: bytes) -> Json:
    """Return the JSON object in `raw`. Raises Refused for anything else, lone surrogates included."""
    if len(raw) > MAX_BODY_BYTES:
        raise Refused("Request exceeds the maximum size", status=413, type="request_too_large")
    try:
        body = json.loads(raw)
        if _SURROGATE.search(raw):
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refused("The request body is not valid JSON: unexpected character") from error
    if not isinstance(body, dict):
        raise not_a("dictionary", "body")
    return body


def check_request(body: Json) -> MessagesRequest:
    """Return the request. Raises Refused with what the real service would say."""
    model = _model(body)
    unknown = next((field for field in body if field not in KNOWN), None)
    if unknown is not None:
        raise Refused(f"{unknown}: Extra inputs are not permitted")
    max_tokens = _max_tokens(body)
    check_system(body.get("system"))
    check_messages(body.get("messages"))
    check_thinking(body)
    check_tools(body)
    markers = count_markers(body)
    if markers > MAX_MARKERS:
        raise Refused(f"A maximum of {MAX_MARKERS} blocks with cache_control may be provided. Found {markers}.")
    return MessagesRequest(
        model=model,
        body=body,
        units=units_of(body, model.counting),
        max_tokens=max_tokens,
        is_stream=bool(body.get("stream")),
        markers=markers,
    )


def check_window(request: MessagesRequest) -> None:
    """Raise Refused if the prompt, or prompt and answer together, are over the window."""
    window = request.model.window_tokens
    if request.prompt_tokens > window:
        raise too_long(request.prompt_tokens, window)
    if request.prompt_tokens + request.max_tokens > window:
        raise over_limit(request.prompt_tokens, request.max_tokens, window)


def _model(body: Json) -> DoubleModel:
    name = body.get("model")
    if not isinstance(name, str):
        raise missing("model") if name is None else not_a("string", "model")
    model = look_up_model(name)
    if model is None:
        raise Refused(f"model: {name}", status=404, type="not_found_error")
    return model


def _max_tokens(body: Json) -> int:
    value = body.get("max_tokens")
    if value is None:
        raise missing("max_tokens")
    if not isinstance(value, int) or isinstance(value, bool):
        raise not_a("integer", "max_tokens")
    if value < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    return value
