"""Reasoning on the OpenAI wire format. OpenAI sends none there; servers that imitate it have members of their own."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

NAMES = ("reasoning_content", "reasoning", "thinking")
"""Members with a piece of reasoning as text.

`reasoning_content` is sent by DeepSeek, SGLang, llama.cpp, LiteLLM and Qwen, `reasoning` by vLLM, OpenRouter, Ollama
and LM Studio. A server that sends two of them says the same in both.
"""

DETAILS = "reasoning_details"
"""OpenRouter's list of parts, with what a provider wants back. Their texts are in `reasoning` too, or only here."""


REQUIRING_HOSTS = ("deepseek.com", "moonshot.ai", "moonshot.cn")
"""Hosts of servers that refuse a step with tool calls without its `reasoning_content`."""


def wants_content(address: str) -> bool:
    """Return whether the server at the address requires `reasoning_content` back."""
    host = (urlsplit(address).hostname or "").lower()
    return any(host == known or host.endswith(f".{known}") for known in REQUIRING_HOSTS)


def extras_in(delta: Mapping[str, Any]) -> dict[str, Any]:  # Any: parsed JSON
    """Return `extra_content` of the delta's tool calls, by the id of the call: Gemini's signatures."""
    calls = [call for call in delta.get("tool_calls") or () if isinstance(call, dict)]
    return {call["id"]: extra for call in calls if call.get("id") and (extra := call.get("extra_content"))}


def reasoning_in(delta: Mapping[str, Any]) -> str:  # Any: parsed JSON
    """Return the piece of reasoning in a delta of an answer, '' if there is none."""
    for name in NAMES:
        if isinstance(said := delta.get(name), str) and said:
            return said
    return "".join(_text_of(part) for part in details_in(delta))


def details_in(delta: Mapping[str, Any]) -> list[dict[str, Any]]:  # Any: parsed JSON
    """Return the parts of reasoning in a delta of an answer."""
    details = delta.get(DETAILS)
    return [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []


def _text_of(part: Mapping[str, Any]) -> str:  # Any: parsed JSON
    said = part.get("text") or part.get("summary")
    return said if isinstance(said, str) else ""
