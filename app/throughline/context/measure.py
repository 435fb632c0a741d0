"""Counting what is no plain text: messages, tool schemas, images. All counts are ours, before any factor.

A count is made once, when a message is stored; `tokens_of` takes the stored one wherever it was made by the counter
now in use.
"""

import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

from throughline.domain.arguments import compact_object
from throughline.domain.message import Content, ImageBlock, Message, NewMessage, ToolCall
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec

Count: TypeAlias = Callable[[str], int]

MESSAGE_TOKENS = 4
"""Framing of one message: OpenAI's cookbook names 3 a message, its role is one more."""

REPLY_TOKENS = 3
"""Every prompt ends with the opening of the reply (the same source)."""

CALL_TOKENS = 8
"""Framing of one tool call beside its id, name and arguments: `{"type":"function","function":…}`, measured."""

TOOL_TOKENS = 12
"""Framing of one tool's schema: the cookbook's 7 to 10 to open it, and the commas and braces our JSON does not show."""

TOOLS_TOKENS = 16
"""Framing of the whole list of tools: the cookbook closes it with 12."""

IMAGE_TOKENS = 1600
"""An image of unknown size: an estimate, neither the least nor the most that it may take.

It is Anthropic's most where larger images are scaled down to 1,568 pixels (~1,600), and above the most of OpenAI's
models that count tiles of 170 (85 + 8 x 170 = 1,445). OpenAI's small models multiply: gpt-4.1-nano to some 3,800, and
gpt-4o-mini reports 25,501 for 1,024 x 1,024 pixels; newer models of both scale down less. So what a provider reports of
a prompt with images says nothing of its text. Detail `low` costs 85 at OpenAI, but not at others, which do not know it.
"""


def count_message(message: NewMessage | Message | PromptMessage, count: Count) -> int:
    """Return the tokens of a message: content, calls and framing; an image counts by its estimate, not its base64."""
    tokens = MESSAGE_TOKENS + count_content(message.content, count)
    for call in message.tool_calls:
        tokens += count_call(call, count)
    if message.tool_call_id:
        tokens += count(message.tool_call_id)
    if message.name:
        tokens += count(message.name)
    return tokens


def tokens_of(message: NewMessage | Message, counter_name: str, count: Count) -> int:
    """Return the stored count of a message, or count it anew where another counter made the stored one."""
    if message.counter == counter_name and message.token_count > 0:
        return message.token_count
    return count_message(message, count)


def count_content(content: Content, count: Count) -> int:
    """Return the tokens of a text or of all blocks."""
    if isinstance(content, str):
        return count(content) if content else 0
    return sum(IMAGE_TOKENS if isinstance(block, ImageBlock) else count(block.text) for block in content)


def count_call(call: ToolCall, count: Count) -> int:
    """Return the tokens of one tool call."""
    return CALL_TOKENS + count(call.id) + count(call.name) + count_arguments(call.arguments, count)


def count_arguments(arguments: str, count: Count) -> int:
    """Return the tokens of arguments as they are written or, where that is longer, as the object sent for them.

    Longer are texts that are no JSON object, by their escapes, and numbers that Python writes out (`1e15`).
    """
    sent = compact_object(arguments)
    return count(arguments) if len(sent) <= len(arguments) else max(count(arguments), count(sent))


def count_tool_specs(specs: Sequence[ToolSpec], count: Count) -> int:
    """Return the tokens the tools take in a prompt, 0 for none."""
    if not specs:
        return 0
    return TOOLS_TOKENS + sum(TOOL_TOKENS + count(_spec_text(spec)) for spec in specs)


def count_system(text: str, count: Count) -> int:
    """Return the tokens of the system message, 0 where none is sent."""
    return MESSAGE_TOKENS + count(text) if text else 0


def count_prompt(prompt: Prompt, tools_tokens: int, count: Count) -> int:
    """Return the tokens of a whole prompt, counted from its text alone."""
    messages = sum(count_message(message, count) for message in prompt.messages)
    return count_system(prompt.system, count) + tools_tokens + messages + REPLY_TOKENS


def _spec_text(spec: ToolSpec) -> str:
    return json.dumps(
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}, ensure_ascii=False
    )
