"""Tools with which a model stores and deletes memories of the user, for agents whose file names them.

In a shared session they fail: other people could store memories of its owner there, and read them.
"""

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from pydantic import Field

from throughline.domain.basic_types import MemoryId
from throughline.domain.errors import NotFound
from throughline.domain.message import clean_text, is_blank
from throughline.domain.recall import MAX_MEMORY_CHARACTERS
from throughline.domain.tool import ToolContext
from throughline.ports.storage import Memories
from throughline.tools.make_function_tool import ToolFailed, not_repeatable


def make_memory_tools(memories: Memories) -> tuple[Callable[..., object], ...]:
    """Return the functions `remember` and `forget`, which store and delete the user's `memories`."""
    tools = _MemoryTools(memories)
    return tools.remember, tools.forget


class _MemoryTools:
    """The memory tools as methods: a model passes their arguments; the storage is kept here."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    @not_repeatable
    async def remember(
        self, text: Annotated[str, Field(min_length=1, max_length=MAX_MEMORY_CHARACTERS)], context: ToolContext
    ) -> str:
        """Store a short text for later conversations with the user. Store what the user wants to be remembered.

        Args:
            text: one fact, complete in itself, for example "Anna's office is in Kungsgatan 12."
            context: the call's own; a model neither sees nor writes it.
        """
        _check_not_shared(context)
        if is_blank(text):
            raise ToolFailed("The text is empty. Write what to remember.")
        memory = await self._memories.create(context.owner_id, clean_text(text), {})
        return f"Stored as memory {memory.id}."

    @not_repeatable
    async def forget(
        self, memory: Annotated[str, Field(min_length=1, max_length=MAX_MEMORY_CHARACTERS)], context: ToolContext
    ) -> str:
        """Delete a memory of the user for good. Delete only what the user wants to be forgotten.

        Args:
            memory: its id, as remember returns it, or its exact text.
            context: the call's own; a model neither sees nor writes it.
        """
        _check_not_shared(context)
        memory_id = _id_in(memory)
        if memory_id is None or not await self._is_deleted(context, memory_id):
            deleted = await self._memories.delete_text(context.owner_id, clean_text(memory))
            if not deleted:
                raise ToolFailed("The user has no such memory. Write its id, or its text exactly as it was stored.")
        return "The memory is deleted."

    async def _is_deleted(self, context: ToolContext, memory_id: MemoryId) -> bool:
        try:
            await self._memories.delete(context.owner_id, memory_id)
        except NotFound:
            return False
        return True


def _check_not_shared(context: ToolContext) -> None:
    if context.is_shared:
        raise ToolFailed("Other people read this conversation, so memories of one user cannot be changed in it.")


def _id_in(text: str) -> MemoryId | None:
    """Return the memory id in `text`, also in the form in which a prompt names it; None for other text."""
    try:
        return MemoryId(UUID(text.strip().strip("[]").removeprefix("memory ")))
    except ValueError:
        return None
