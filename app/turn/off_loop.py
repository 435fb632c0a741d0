"""Where work over long texts is done: beside the event loop, so that one user's text makes nobody else wait."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from app.domain.message import Content, ImageBlock, Message, NewMessage
from app.domain.prompt import PromptMessage

T = TypeVar("T")

LARGE_CHARACTERS = 50_000
"""From this length on counting, matching, cutting and planning leave the event loop: counting it takes about 10 ms."""


async def run_off_loop_if_large(characters: int, work: Callable[[], T]) -> T:
    """Return what `work` returns; it runs in a thread where it reads more than `LARGE_CHARACTERS`.

    It must change nothing that others see: whoever waits here may be cancelled while it goes on.
    """
    return await asyncio.to_thread(work) if characters > LARGE_CHARACTERS else work()


def characters_of(messages: Iterable[Message | NewMessage | PromptMessage]) -> int:
    """Return the characters of the messages' texts and of their calls' arguments."""
    return sum(
        _characters(message.content) + sum(len(call.arguments) for call in message.tool_calls) for message in messages
    )


def _characters(content: Content) -> int:
    """An image has none: it is not read."""
    if isinstance(content, str):
        return len(content)
    return sum(0 if isinstance(block, ImageBlock) else len(block.text) for block in content)
