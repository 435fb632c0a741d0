"""Token counts of messages, tool schemas and images. All counts are ours, before the model's factor is applied.

A message is counted once, when it is stored. `tokens_of` uses the stored count if the counter now in use made it.
"""

import json
from collections.abc import Callable, Sequence
from typing import TypeAlias

from throughline.context.identity_cache import IdentityCache
from throughline.domain.message import Content, ImageBlock, Message, NewMessage, ToolCall
from throughline.domain.prompt import Prompt, PromptMessage, ToolSpec
from throughline.domain.reasoning import Reasoning, readable_and_opaque
from throughline.domain.tool import compact_object

Count: TypeAlias = Callable[[str], int]

MESSAGE_TOKENS = 4
"""Tokens of one message's framing: OpenAI's cookbook names 3 per message, and one more for its role."""

REPLY_TOKENS = 3
"""Tokens of the reply's opening, with which every prompt ends (same source)."""

CALL_TOKENS = 8
"""Tokens of a tool call's framing besides its id, name and arguments: `{"type":"function","function":…}`, measured."""

TOOL_TOKENS = 12
"""Tokens of one tool schema's framing.

The cookbook's 7 to 10 open it; the rest are commas and braces that our JSON does not contain.
"""

TOOLS_TOKENS = 16
"""Tokens of the framing of the whole tool list: the cookbook closes it with 12."""

IMAGE_TOKENS = 1600
"""Tokens of an image of unknown size: an estimate, neither a minimum nor a maximum.

It is Anthropic's maximum for models that scale images down to 1,568 pixels (~1,600), and above the maximum of OpenAI's
models that count tiles of 170 (85 + 8 x 170 = 1,445). OpenAI's small models multiply: gpt-4.1-nano up to about 3,800;
gpt-4o-mini reports 25,501 for 1,024 x 1,024 pixels. Newer models of both scale down less. A provider's report about a
prompt with images therefore teaches nothing about its text. Detail `low` costs 85 at OpenAI, but other providers do not
know it.
"""


CHARACTERS_PER_OPAQUE_TOKEN = 5
"""Characters of a signature or of encrypted reasoning that stand for one token of it.

Base64 of text that has four characters a token, and the encryption's own. An estimate: no provider says what it counts.
"""

_of_reasoning: IdentityCache[Reasoning, tuple[object, int]] = IdentityCache()
"""Cache of the tokens of reasoning that is sent back, with the function that counted them."""


def count_reasoning(reasoning: Reasoning | None, count: Count) -> int:
    """Return the tokens of the parts of reasoning that are sent back.

    A part's encrypted text stands for what it says in the open, or for more. So the larger of both is counted.
    """
    if reasoning is None or not reasoning.parts:
        return 0
    known = _of_reasoning.find(reasoning)
    if known is None or known[0] != count:
        split = [readable_and_opaque(part) for part in reasoning.parts]
        tokens = sum(max(count(text), opaque // CHARACTERS_PER_OPAQUE_TOKEN) for text, opaque in split)
        _of_reasoning.keep(reasoning, known := (count, tokens))
    return known[1]


def count_message(message: NewMessage | Message | PromptMessage, count: Count) -> int:
    """Return the tokens of a message: content, calls, reasoning that is sent back, and framing.

    An image counts by an estimate, not by its base64.
    """
    tokens = MESSAGE_TOKENS + count_content(message.content, count) + count_reasoning(message.reasoning, count)
    for call in message.tool_calls:
        tokens += count_call(call, count)
    if message.tool_call_id:
        tokens += count(message.tool_call_id)
    if message.name:
        tokens += count(message.name)
    return tokens


def tokens_of(message: NewMessage | Message, counter_name: str, count: Count) -> int:
    """Return the stored count of a message; a new count if none is stored or another counter made it.

    The stored count does not include reasoning: it is sent back in the message's own turn only.
    """
    if message.counter == counter_name and message.token_count > 0:
        return message.token_count + count_reasoning(message.reasoning, count)
    return count_message(message, count)


def count_content(content: Content, count: Count) -> int:
    """Return the tokens of a text, or of all blocks together."""
    if isinstance(content, str):
        return count(content) if content else 0
    return sum(IMAGE_TOKENS if isinstance(block, ImageBlock) else count(block.text) for block in content)


def count_call(call: ToolCall, count: Count) -> int:
    """Return the tokens of one tool call."""
    return CALL_TOKENS + count(call.id) + count(call.name) + count_arguments(call.arguments, count)


def count_arguments(arguments: str, count: Count) -> int:
    """Return the tokens of a call's arguments as written or, if that is longer, as the JSON object that is sent.

    The object is longer if the text is no JSON object, because of its escapes, or has numbers that Python expands
    (`1e15`).
    """
    sent = compact_object(arguments)
    return count(arguments) if len(sent) <= len(arguments) else max(count(arguments), count(sent))


def count_tool_specs(specs: Sequence[ToolSpec], count: Count) -> int:
    """Return the tokens of the tools in a prompt, 0 without tools."""
    if not specs:
        return 0
    return TOOLS_TOKENS + sum(TOOL_TOKENS + count(_spec_text(spec)) for spec in specs)


def count_system(text: str, count: Count) -> int:
    """Return the tokens of the system message, 0 if none is sent."""
    return MESSAGE_TOKENS + count(text) if text else 0


def count_prompt(prompt: Prompt, tools_tokens: int, count: Count) -> int:
    """Return the tokens of a whole prompt, counted from its text alone."""
    messages = sum(count_message(message, count) for message in prompt.messages)
    return count_system(prompt.system, count) + tools_tokens + messages + REPLY_TOKENS


def _spec_text(spec: ToolSpec) -> str:
    return json.dumps(
        {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}, ensure_ascii=False
    )
