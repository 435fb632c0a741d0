"""Adaptation of a prompt to OpenAI's chat completions: no images in tool results, a limited number of calls.

Messages that were imported, or stored from another provider, may have such images or more calls. OpenAI would refuse
them in every turn of the session.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from throughline.context.groups import Group, group_messages
from throughline.domain.message import Block, Content, ImageBlock, Role, TextBlock
from throughline.domain.prompt import PromptMessage

MOST_CALLS = 128
"""Most tool calls of one assistant message; OpenAI refuses more."""

IMAGES_FOLLOW = "[The images of this result follow the results.]"


def within_openai_limits(messages: tuple[PromptMessage, ...]) -> tuple[PromptMessage, ...]:
    """Return the messages with images of tool results in a user message after them, and long steps split into several.

    Each call must be followed by its result, as in all our prompts. If nothing needs to change, the same messages are
    returned. The few tokens of inserted texts are not counted.
    """
    if not any(map(_is_beyond, messages)):
        return messages
    return tuple(chain.from_iterable(map(_in_steps, group_messages(messages))))


def _is_beyond(message: PromptMessage) -> bool:
    return len(message.tool_calls) > MOST_CALLS or (message.role is Role.TOOL and bool(_images(message.content)))


def _in_steps(group: Group[PromptMessage]) -> Iterator[PromptMessage]:
    """Yield the group's messages in steps of at most `MOST_CALLS` calls, each followed by its results and images."""
    head, calls = group.head, group.head.tool_calls
    if len(calls) <= MOST_CALLS:
        yield head
        yield from _with_images_after(group.messages[1:])
        return
    for start in range(0, len(calls), MOST_CALLS):
        step = slice(start, start + MOST_CALLS)
        is_first = start == 0
        content, reasoning = (head.content, head.reasoning) if is_first else ("", None)
        yield replace(head, content=content, tool_calls=calls[step], reasoning=reasoning)
        yield from _with_images_after([result for result in group.results[step] if result is not None])


def _with_images_after(results: Sequence[PromptMessage]) -> Iterator[PromptMessage]:
    images: list[Block] = []
    for result in results:
        found = _images(result.content)
        if not found:
            yield result
            continue
        yield replace(result, content=(*_texts(result.content), TextBlock(IMAGES_FOLLOW)))
        images.extend((TextBlock(f"[From the result of {result.name or 'tool'}:]"), *found))
    if images:
        yield PromptMessage(Role.USER, tuple(images))


def _images(content: Content) -> tuple[ImageBlock, ...]:
    return () if isinstance(content, str) else tuple(block for block in content if isinstance(block, ImageBlock))


def _texts(content: Content) -> tuple[TextBlock, ...]:
    return () if isinstance(content, str) else tuple(block for block in content if isinstance(block, TextBlock))
