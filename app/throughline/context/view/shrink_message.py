"""Shortening of one prompt message: text and call arguments lose their middle, images are left out, all with marks."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from throughline.context.measure import IMAGE_TOKENS, Count, count_arguments, count_message
from throughline.domain.message import Block, Content, ImageBlock, TextBlock, ToolCall, text_of
from throughline.domain.prompt import PromptMessage

MAX_CHARACTERS_PER_TOKEN = 32
"""A text with more characters per allowed token is not counted as a whole first: that would take seconds."""

FIRST_GUESS_CHARACTERS_PER_TOKEN = 3
GOOD_ENOUGH = 0.9
MAX_TRIES = 8
HEAD_SHARE = 0.6


def truncate_middle(text: str, max_tokens: int, count: Callable[[str], int], label: str = "") -> str:
    """Return `text`, or its head and tail around a mark, in at most `max_tokens`.

    `label` names the text in the mark, for example ` of #12`. The result is never longer than `text`. `count` is called
    at most about ten times, on pieces in proportion to `max_tokens`. Returns '' if not even the mark fits.
    """
    if max_tokens <= 0:
        return ""
    if len(text) <= max_tokens * MAX_CHARACTERS_PER_TOKEN and count(text) <= max_tokens:
        return text
    return _search(text, max_tokens, count, label) or _smallest(text, max_tokens, count, label)


def cut_middle(text: str, keep: int, label: str = "") -> str:
    """Return the first and last characters of `text`, `keep` in all, around the mark; a shorter text unchanged."""
    if keep >= len(text):
        return text
    head = int(keep * HEAD_SHARE)
    tail = keep - head
    return f"{text[:head]}{mark(len(text) - keep, label)}{text[len(text) - tail :] if tail else ''}"


def cut_to_bytes(text: str, max_bytes: int, label: str = "") -> str:
    """Return `text`, or its head and tail in `max_bytes` of UTF-8; the mark comes on top of that."""
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return text
    head_bytes = int(max_bytes * HEAD_SHARE)
    head = data[:head_bytes].decode("utf-8", "ignore")
    tail = data[len(data) - (max_bytes - head_bytes) :].decode("utf-8", "ignore")
    return f"{head}{mark(len(text) - len(head) - len(tail), label)}{tail}"


def mark(characters: int, label: str = "") -> str:
    """Return the mark that stands for omitted characters and says how many they are."""
    return f"\n[… {characters:,} characters{label} left out …]\n"


def _search(text: str, max_tokens: int, count: Callable[[str], int], label: str) -> str:
    """Search for the largest cut that fits, first by proportion, then by bisection."""
    best, fits, too_much = "", 0, len(text)
    keep = min(len(text) - 1, max_tokens * FIRST_GUESS_CHARACTERS_PER_TOKEN)
    for _ in range(MAX_TRIES):
        candidate = cut_middle(text, keep, label)
        tokens = count(candidate)
        if tokens <= max_tokens:
            best, fits = candidate, keep
        else:
            too_much = keep
        if GOOD_ENOUGH * max_tokens <= tokens <= max_tokens or too_much - fits <= 1:
            break
        guess = int(keep * max_tokens / max(tokens, 1) * 0.98)
        keep = guess if fits < guess < too_much else (fits + too_much) // 2
    return best


def _smallest(text: str, max_tokens: int, count: Callable[[str], int], label: str) -> str:
    for candidate in (mark(len(text), label).strip(), "[…]", "…"):
        if count(candidate) <= max_tokens:
            return candidate
    return ""


IMAGE_SHARE = 0.5
"""Share of a message's tokens that its images may take beside a long text; a short text leaves them the rest.

Images beyond it are left out, the first ones stay.
"""

NOTE_TOKENS = 16
"""Tokens of the note in place of images that are left out, `[46 images left out]`, at most."""

ARGUMENT_SHARES = (0.8, 0.4, 0.1)
"""Shares of the allowed tokens to which a call's arguments are cut, tried one after the other.

Inside a JSON string they may take more tokens than as plain text.
"""

NO_ARGUMENTS = "{}"
NOTHING = "[…]"


def shrink_message(message: PromptMessage, max_tokens: int, count: Count) -> PromptMessage:
    """Return the message in about `max_tokens`: exact for text; calls keep at least their framing and names.

    Reasoning that would be sent back goes first, because every provider takes a step without it.
    """
    if message.reasoning is not None:
        message = replace(message, reasoning=None)
        if count_message(message, count) <= max_tokens:
            return message
    bare = replace(message, content="", tool_calls=tuple(replace(call, arguments="") for call in message.tool_calls))
    room = max(max_tokens - count_message(bare, count), 0)
    sizes = [
        _content_size(message.content, count),
        *(count_arguments(call.arguments, count) for call in message.tool_calls),
    ]
    level = fair_level(sizes, room)
    label = _label(message)
    content = message.content
    if sizes[0] > level:
        content = _shrink_content(content, level, count, label)
    calls = tuple(
        call if size <= level else replace(call, arguments=_shrink_arguments(call, level, count))
        for call, size in zip(message.tool_calls, sizes[1:], strict=True)
    )
    return replace(message, content=content, tool_calls=calls)


def cap_output(content: Content, max_bytes: int, position: int) -> Content:
    """Return a tool's output with each of its texts in at most `max_bytes`, plus the mark of an omission.

    An output without a text that is too long is returned as the same object.
    """
    label = f" of message #{position}"
    if isinstance(content, str):
        return cut_to_bytes(content, max_bytes, label)
    cut = tuple(
        TextBlock(cut_to_bytes(block.text, max_bytes, label)) if isinstance(block, TextBlock) else block
        for block in content
    )
    return content if cut == content else cut


def fair_level(sizes: Sequence[int], room: int) -> int:
    """Return the largest level such that the sizes fit `room` together when each is cut to that level."""
    left = room
    ordered = sorted(sizes)
    for index, size in enumerate(ordered):
        share = left // (len(ordered) - index)
        if size > share:
            return max(share, 0)
        left -= size
    return max(ordered, default=0)


def _label(message: PromptMessage) -> str:
    return "" if message.position is None else f" of message #{message.position}"


def _content_size(content: Content, count: Count) -> int:
    if isinstance(content, str):
        return count(content)
    return sum(IMAGE_TOKENS if isinstance(block, ImageBlock) else count(block.text) for block in content)


def _shrink_content(content: Content, max_tokens: int, count: Count, label: str) -> Content:
    """Return the content in at most `max_tokens`. A text is cut; of blocks, the first images that fit stay.

    The texts of all blocks are joined and cut.
    """
    if isinstance(content, str):
        return truncate_middle(content, max_tokens, count, label) or NOTHING
    images = [block for block in content if isinstance(block, ImageBlock)]
    text = text_of(content)
    room = max(int(max_tokens * IMAGE_SHARE), max_tokens - count(text) - NOTE_TOKENS)
    kept = images[: room // IMAGE_TOKENS]
    left = max_tokens - len(kept) * IMAGE_TOKENS
    if len(kept) < len(images):
        text = f"[{len(images) - len(kept)} images left out]\n{text}"
    blocks: tuple[Block, ...] = (TextBlock(truncate_middle(text, left, count, label) or NOTHING), *kept)
    return blocks if kept else text_of(blocks)


def _shrink_arguments(call: ToolCall, max_tokens: int, count: Count) -> str:
    """Return a JSON object that holds head and tail of the arguments, or an empty one if none fits."""
    for share in ARGUMENT_SHARES:
        cut = truncate_middle(call.arguments, int(max_tokens * share), count)
        arguments = json.dumps({"_truncated": cut}, ensure_ascii=False)
        if cut and count(arguments) <= max_tokens:
            return arguments
    return NO_ARGUMENTS
