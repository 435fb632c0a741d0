"""A chat request as the double reads it, and the models it serves: `double-8k-cl100k` names window and counting."""

import json
import re
from dataclasses import dataclass

from fakes.provider_double.checks import check_messages, check_reasoning, check_response_format, check_tools, wrong_type
from fakes.provider_double.counting import COUNTINGS, Counting
from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused, too_long

NAMES = tuple(f"double-{window}-{counting}" for window in ("8k", "16k", "128k") for counting in sorted(COUNTINGS))
"""Those `/v1/models` lists; any other window works as well (`double-4k-bytes2`, `double-600-cl100k`)."""

_NAME = re.compile(r"double-(\d{1,7})(k?)-(\w+?)(-thinks)?")


@dataclass(frozen=True, slots=True)
class DoubleModel:
    """One model: its window in tokens, prompt and answer together, and how it counts."""

    name: str
    window_tokens: int
    counting: Counting
    thinks: bool = False


def find_model(name: str) -> DoubleModel:
    """Return the model of that name. Raises Refused (404) as OpenAI does for one it does not know."""
    model = look_up_model(name)
    if model is None:
        raise Refused(
            f"The model `{name}` does not exist or you do not have access to it.", status=404, code="model_not_found"
        )
    return model


def look_up_model(name: str) -> DoubleModel | None:
    """Return the model of that name, None for a name that says no window or no known way of counting."""
    match = _NAME.fullmatch(name)
    if match is None or match[3] not in COUNTINGS:
        return None
    window = int(match[1]) * (1024 if match[2] else 1)
    return DoubleModel(name, window, COUNTINGS[match[3]], thinks=bool(match[4]))


_KNOWN = """
    model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens max_completion_tokens
    temperature top_p n stop seed user frequency_penalty presence_penalty logit_bias logprobs top_logprobs
    response_format metadata store service_tier reasoning_effort
"""
KNOWN = frozenset(_KNOWN.split())
_UNPARSABLE = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
    "correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request that may be answered. `prompt_tokens` is the double's own count of messages and tools."""

    model: DoubleModel
    messages: tuple[Json, ...]
    tools: tuple[Json, ...]
    max_tokens: int | None
    is_stream: bool
    includes_usage: bool
    prompt_tokens: int
    settings: Json


def parse_body(raw: bytes) -> Json:
    """Return the JSON object in `raw`. Raises Refused for anything else, lone surrogates included."""
    try:
        body = json.loads(raw)
        if _SURROGATE.search(raw):
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refused(_UNPARSABLE) from error
    if not isinstance(body, dict):
        raise Refused(_UNPARSABLE)
    return body


def check_request(body: Json) -> ChatRequest:
    """Return the request. Raises Refused with what the real service would say."""
    unknown = next((field for field in body if field not in KNOWN), None)
    if unknown is not None:
        raise Refused(f"Unrecognized request argument supplied: {unknown}")
    model = _model(body)
    check_messages(body.get("messages"))
    check_reasoning(body["messages"], is_required=model.thinks)
    check_tools(body)
    check_response_format(body)
    max_tokens = _max_tokens(body)
    includes_usage = _check_stream(body)
    messages, tools = tuple(body["messages"]), tuple(body.get("tools") or ())
    return ChatRequest(
        model=model,
        messages=messages,
        tools=tools,
        max_tokens=max_tokens,
        is_stream=bool(body.get("stream")),
        includes_usage=includes_usage,
        settings={name: body[name] for name in ("temperature", "response_format") if name in body},
        prompt_tokens=model.counting.in_messages(messages) + model.counting.in_tools(tools),
    )


def check_window(request: ChatRequest) -> None:
    """Raise Refused if prompt and answer together are over the window."""
    if request.prompt_tokens + (request.max_tokens or 0) > request.model.window_tokens:
        raise window_refusal(request)


def window_refusal(request: ChatRequest) -> Refused:
    """Return what OpenAI says to a prompt that is too long, with this request's numbers."""
    in_tools = request.model.counting.in_tools(request.tools)
    return too_long(request.model.window_tokens, (request.prompt_tokens - in_tools, in_tools), request.max_tokens)


def _model(body: Json) -> DoubleModel:
    name = body.get("model")
    if not name:
        raise Refused("you must provide a model parameter")
    if not isinstance(name, str):
        raise wrong_type("model", "a string", name)
    return find_model(name)


def _max_tokens(body: Json) -> int | None:
    named = [field for field in ("max_tokens", "max_completion_tokens") if body.get(field) is not None]
    if len(named) > 1:
        raise Refused(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            code="invalid_parameter_combination",
        )
    if not named:
        return None
    value = body[named[0]]
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(named[0], "an integer", value)
    if value < 1:
        raise Refused(
            f"Invalid '{named[0]}': integer below minimum value. Expected a value >= 1, but got {value} instead.",
            param=named[0],
            code="integer_below_min_value",
        )
    return value


def _check_stream(body: Json) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not body.get("stream"):
        raise Refused(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    return isinstance(options, dict) and bool(options.get("include_usage"))
