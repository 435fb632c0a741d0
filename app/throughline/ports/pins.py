"""The interface to stored pins, for the code that pins and unpins messages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from throughline.domain.ids import MessageId, SessionId, UserId
from throughline.domain.message import Message

CheckRoom: TypeAlias = Callable[[int], None]
"""A check that gets the total tokens of the session's other pins, and raises if the new pins would not fit."""


@dataclass(frozen=True, slots=True)
class PinGroup:
    """Messages that are pinned together: a model's message with tool calls and their results, ordered by position.

    `missing_results` counts the group's calls without a stored result. `is_orphan`: the message is a tool result
    without a call, or of a call that already has a result.
    """

    messages: tuple[Message, ...]
    missing_results: int = 0
    is_orphan: bool = False


class PinStore(Protocol):
    """Storage of pins. Messages and sessions of other owners raise NotFound."""

    async def find_group(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> PinGroup:
        """Return the messages that are pinned together with this one. Raises NotFound."""

    async def pin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...], check: CheckRoom
    ) -> tuple[Message, ...]:
        """Pin the messages and return them by position; already pinned messages stay pinned.

        `check` runs under a lock, so no other pin can be added in the session between it and the write. If it raises,
        nothing is pinned and its error is passed on. Raises NotFound.
        """

    async def unpin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...]
    ) -> tuple[Message, ...]:
        """Unpin the messages and return them by position; messages without a pin are unchanged. Raises NotFound."""
