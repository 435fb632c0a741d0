"""Markers for Anthropic's prompt cache: after the system prompt, and at the ends of this and earlier prompts.

The prompt of one call begins with the whole prompt of the call before, unless a stage has changed the view in between.
The ends of earlier prompts are marked, too: the cache looks back only about 20 blocks from a marker, and one step of a
tool loop may add more.
"""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

MOST_MARKERS = 4
"""Most markers of one request; Anthropic refuses more."""

_MARKER = {"type": "ephemeral"}


def with_cache_markers(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages with at most `MOST_MARKERS` markers.

    All contents except the model's own become lists of blocks, marked or not: a message must be the same in every call,
    and only blocks can be marked.
    """
    system = [index for index, message in enumerate(messages) if isinstance(message, SystemMessage)]
    ends = [index for index in range(len(messages)) if index not in system and _ends_a_prompt(messages, index)]
    marked = {*system, *ends[len(system) - MOST_MARKERS :]}
    return [_in_blocks(message, is_marked=index in marked) for index, message in enumerate(messages)]


def _ends_a_prompt(messages: Sequence[BaseMessage], index: int) -> bool:
    """Return whether the model answered directly after this message, or is to answer it now."""
    is_before_answer = index + 1 == len(messages) or isinstance(messages[index + 1], AIMessage)
    return is_before_answer and not isinstance(messages[index], AIMessage)


def _in_blocks(message: BaseMessage, *, is_marked: bool) -> BaseMessage:
    if isinstance(message, AIMessage):
        return message
    content = message.content
    blocks: list[str | dict[str, object]] = [{"type": "text", "text": content}]
    if isinstance(content, list):
        blocks = list(content)
    if is_marked and blocks:
        blocks[-1] = _marked(blocks[-1])
    return message.model_copy(update={"content": blocks})


def _marked(block: str | dict[str, object]) -> dict[str, object]:
    if isinstance(block, str):
        return {"type": "text", "text": block, "cache_control": _MARKER}
    image = block.get("image_url")
    if isinstance(image, dict):  # LangChain would drop the marker of a block in OpenAI's form
        return {"type": "image", "url": image["url"], "cache_control": _MARKER}
    return {**block, "cache_control": _MARKER}
