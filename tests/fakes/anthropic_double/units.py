"""A request as units of a prompt cache (each tool, system block and content block), and that cache."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from fakes.anthropic_double.checks import blocks_of
from fakes.provider_double.counting import Counting
from fakes.provider_double.json_types import Json

IMAGE_TOKENS = 1568
"""What an image costs at most (width x height / 750, the longest side scaled to 1,568)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One block: its identity for the cache (without its marker), its tokens, and whether a marker stands on it."""

    identity: str
    tokens: int
    has_marker: bool


def units_of(body: Json, counting: Counting) -> tuple[Unit, ...]:
    """Return the units of a valid request."""
    return (*_tool_units(body, counting), *_system_units(body, counting), *_message_units(body, counting))


def count_markers(body: Json) -> int:
    """Return how many cache markers a valid request has."""
    blocks = [*(body.get("tools") or ()), *system_blocks(body)]
    blocks += [block for message in body["messages"] for block in blocks_of(message)]
    return sum("cache_control" in block for block in blocks)


def system_blocks(body: Json) -> list[Json]:
    """Return the blocks of the system prompt; a text is one block."""
    system = body.get("system")
    if isinstance(system, str):
        return [{"type": "text", "text": system}]
    return list(system or ())


def texts_of(blocks: Sequence[Json]) -> Iterator[str]:
    """Yield the texts in valid blocks, those of tool results too."""
    for block in blocks:
        if block["type"] == "text":
            yield block["text"]
        elif block["type"] == "tool_result":
            yield from texts_of(_result_blocks(block))


def _tool_units(body: Json, counting: Counting) -> Iterator[Unit]:
    extra = counting.tools_tokens
    for tool in body.get("tools") or ():
        text = _dumps(tool)
        yield Unit(f"tool {text}", extra + counting.tool_tokens + counting.count(text), "cache_control" in tool)
        extra = 0


def _system_units(body: Json, counting: Counting) -> Iterator[Unit]:
    extra = counting.message_tokens
    for block in system_blocks(body):
        yield Unit(f"system {_dumps(block)}", extra + counting.count(block["text"]), "cache_control" in block)
        extra = 0


def _message_units(body: Json, counting: Counting) -> Iterator[Unit]:
    choice = _dumps(body.get("tool_choice") or {})  # another choice of tools forgets the messages, not what is before
    for message in body["messages"]:
        extra = counting.message_tokens
        for block in blocks_of(message):
            identity = f"{choice} {message['role']} {_dumps(block)}"
            yield Unit(identity, extra + _tokens(block, counting), "cache_control" in block)
            extra = 0


def _tokens(block: Json, counting: Counting) -> int:
    count = counting.count
    match block["type"]:
        case "text":
            return count(block["text"])
        case "thinking":
            return count(block["thinking"])
        case "redacted_thinking":
            return count(block["data"].partition(" ")[2])
        case "image":
            return IMAGE_TOKENS
        case "tool_use":
            return counting.call_tokens + count(block["id"]) + count(block["name"]) + count(_dumps(block["input"]))
        case _:
            inner = sum(_tokens(each, counting) for each in _result_blocks(block))
            return counting.message_tokens + count(block["tool_use_id"]) + inner


def _result_blocks(block: Json) -> list[Json]:
    content = block.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _dumps(value: Json) -> str:
    return json.dumps({key: inner for key, inner in value.items() if key != "cache_control"}, ensure_ascii=False)


LOOKBACK = 20
"""So many blocks before each marker are looked at for a stored prefix."""

MINIMUM_TOKENS = 1024
"""Shorter prefixes are not cached, whatever the markers say."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Tokens of one prompt that were read from the cache, and tokens that were written to it."""

    read: int
    written: int


@dataclass(slots=True)
class PromptCache:
    """What was written so far, for all models; nothing expires."""

    _known: set[str] = field(default_factory=set)

    def use(self, model: str, units: Sequence[Unit]) -> CacheUse:
        """Read and write the cache as the request's markers ask for."""
        sums = list(accumulate(unit.tokens for unit in units))
        keys = list(accumulate((unit.identity for unit in units), _chained, initial=model))[1:]
        ends = [at for at, unit in enumerate(units) if unit.has_marker and sums[at] >= MINIMUM_TOKENS]
        found = max(
            (sums[at] for end in ends for at in range(max(end - LOOKBACK, 0), end + 1) if self._has(keys[at])),
            default=0,
        )
        self._known.update(keys[end] for end in ends)
        return CacheUse(read=found, written=max(sums[ends[-1]] - found, 0) if ends else 0)

    def _has(self, key: str) -> bool:
        return key in self._known


def _chained(before: str, identity: str) -> str:
    return hashlib.sha256(f"{before}\0{identity}".encode("utf-8", "surrogatepass")).hexdigest()
