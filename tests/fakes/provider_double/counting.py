"""Counts prompts as three different providers might: on purpose not the way the service under test does.

Each way adds an overhead for messages, calls and tools that the service is not told of.
"""

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fakes.provider_double.json_types import Json
from throughline.llm.counters import load_encoding

LOW_DETAIL_TOKENS = 85
IMAGE_TOKENS = 765


@functools.lru_cache(maxsize=100_000)
def _encoded(encoding: str, text: str) -> int:
    return len(load_encoding(encoding).encode_ordinary(text))


def count_cl100k(text: str) -> int:
    """Tokens in cl100k."""
    return _encoded("cl100k_base", text)


def count_o200k(text: str) -> int:
    """Tokens in o200k."""
    return _encoded("o200k_base", text)


def count_bytes2(text: str) -> int:
    """Half the UTF-8 bytes: about twice as many as a real tokenizer finds in English."""
    return (len(text.encode("utf-8", "surrogatepass")) + 1) // 2


@dataclass(frozen=True, slots=True)
class Counting:
    """A way of counting text, and what it adds for each message, tool call, tool and for the list of tools."""

    count: Callable[[str], int]
    message_tokens: int
    call_tokens: int = 10
    tool_tokens: int = 14
    tools_tokens: int = 20
    reply_tokens: int = 3

    def in_messages(self, messages: Sequence[Json]) -> int:
        """Tokens of all messages with their framing."""
        return self.reply_tokens + sum(self._message(message) for message in messages)

    def in_tools(self, tools: Sequence[Json]) -> int:
        """Tokens of the tools' schemas, 0 for none."""
        if not tools:
            return 0
        return self.tools_tokens + sum(self.tool_tokens + self.count(_tool_text(tool)) for tool in tools)

    def _message(self, message: Json) -> int:
        texts = sum(self.count(text) for text in texts_of(message) if text)
        calls = message.get("tool_calls") or ()
        texts += self.count(message.get("reasoning_content") or "")
        return self.message_tokens + texts + sum(map(_image, _images(message))) + sum(map(self._call, calls))

    def _call(self, call: Json) -> int:
        function = call["function"]
        return self.call_tokens + self.count(function["name"]) + self.count(function["arguments"])


COUNTINGS = {
    "cl100k": Counting(count_cl100k, message_tokens=5),
    "o200k": Counting(count_o200k, message_tokens=4),
    "bytes2": Counting(count_bytes2, message_tokens=7),
}


def texts_of(message: Json) -> Iterator[str]:
    """Yield the texts of a valid message: its content, its name, the id it answers."""
    content = message.get("content")
    if isinstance(content, str):
        yield content
    else:
        yield from (block["text"] for block in content or () if block["type"] == "text")
    for field in ("name", "tool_call_id"):
        if message.get(field):
            yield message[field]


def _images(message: Json) -> list[Json]:
    content = message.get("content")
    return [block for block in content if block["type"] == "image_url"] if isinstance(content, list) else []


def _image(block: Json) -> int:
    return LOW_DETAIL_TOKENS if block["image_url"].get("detail") == "low" else IMAGE_TOKENS


def _tool_text(tool: Json) -> str:
    return json.dumps(tool["function"], ensure_ascii=False, separators=(",", ":"))
