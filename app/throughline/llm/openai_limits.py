"""A prompt in the form that OpenAI's chat completions take: no images in tool results, and not too many calls at once.

What was imported, or stored from another provider, may hold both; OpenAI would refuse it, in every turn of its session.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from throughline.context.groups import Group, group_messages
from throughline.domain.message import Block, Content, ImageBlock, Role, TextBlock
from throughline.domain.prompt import PromptMessage

MOST_CALLS = 128
"""OpenAI refuses an assistant message with more."""

IMAGES_FOLLOW = "[The images of this result follow the results.]"


def within_openai_limits(messages: tuple[PromptMessage, ...]) -> tuple[PromptMessage, ...]:
    """Return the messages, with images of tool results in a user message after them, and long steps in several.

    Each call must be followed by its result, as in every prompt of ours. Where there is nothing to do, the very same
    messages come back. The few tokens of what is put in are not counted.
    """
    if not any(map(_is_beyond, messages)):
        return messages
    return tuple(chain.from_iterable(map(_in_steps, group_messages(messages))))


def _is_beyond(message: PromptMessage) -> bool:
    return len(message.tool_calls) > MOST_CALLS or (message.role is Role.TOOL and bool(_images(message.content)))


def _in_steps(group: Group[PromptMessage]) -> Iterator[PromptMessage]:
    """Yield the group's messages: after each step of at most `MOST_CALLS` calls its results, and then their images."""
    head, calls = group.head, group.head.tool_calls
    if len(calls) <= MOST_CALLS:
        yield head
        yield from _with_images_after(group.messages[1:])
        return
    for start in range(0, len(calls), MOST_CALLS):
        step = slice(start, start + MOST_CALLS)
        yield replace(head, content=head.content if start == 0 else "", tool_calls=calls[step])
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
