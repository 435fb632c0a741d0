"""A Messages request as the double reads it, with thinking blocks signed by the model that wrote them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from fakes.anthropic_double.checks import (
    Refused,
    check_messages,
    check_system,
    check_tools,
    missing,
    not_a,
    over_limit,
    too_long,
)
from fakes.anthropic_double.units import Unit, count_markers, units_of
from fakes.provider_double.chat_request import DoubleModel, look_up_model
from fakes.provider_double.json_types import Json

KINDS = frozenset({"thinking", "redacted_thinking"})


def sign(model: str, text: str) -> str:
    """Return the signature of a thinking text, or the encrypted form of one that is not shown."""
    return sha256(f"{model} {text}".encode()).hexdigest()


def thinking_blocks(model: str, thinking: str, redacted: str) -> list[Json]:
    """Return the blocks with which an answer begins."""
    blocks: list[Json] = []
    if redacted:
        blocks.append({"type": "redacted_thinking", "data": f"{sign(model, redacted)} {redacted}"})
    if thinking:
        blocks.append({"type": "thinking", "thinking": thinking, "signature": sign(model, thinking)})
    return blocks


def check_thinking(body: Json) -> None:
    """Raise Refused for blocks that this model did not write, or a step under way that lacks its blocks."""
    messages = [message for message in body["messages"] if isinstance(message["content"], list)]
    for index, message in enumerate(messages):
        for place, block in enumerate(message["content"]):
            if block["type"] in KINDS and not _is_own(body["model"], block):
                raise Refused(f"messages.{index}.content.{place}: Invalid `signature` in `thinking` block")
    if (body.get("thinking") or {}).get("type") == "enabled":
        _check_last_step(body["messages"])


def _is_own(model: str, block: Json) -> bool:
    if block["type"] == "thinking":
        return bool(block["signature"] == sign(model, block["thinking"]))
    encrypted, _, text = block["data"].partition(" ")
    return bool(encrypted == sign(model, text))


def _check_last_step(messages: Sequence[Json]) -> None:
    """A step whose results are being sent must begin as the model wrote it."""
    last, results = messages[-2:] if len(messages) > 1 else (messages[-1], messages[-1])
    has_results = isinstance(results["content"], list) and any(b["type"] == "tool_result" for b in results["content"])
    if last["role"] != "assistant" or not has_results:
        return
    first = last["content"][0]["type"]
    if first not in KINDS:
        raise Refused(
            f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{first}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block."
        )


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
