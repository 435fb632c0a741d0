"""Where pins are kept, as whoever sets them needs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from throughline.domain.ids import MessageId, SessionId, UserId
from throughline.domain.message import Message

CheckRoom: TypeAlias = Callable[[int], None]
"""Given the sum of the stored counts of the session's other pinned messages; raises where there is no room beside."""


@dataclass(frozen=True, slots=True)
class PinGroup:
    """A message with all that is pinned with it: a tool call and its results, ordered by position.

    `missing_results` counts calls of the group without a stored result; `is_orphan` says that the message is a tool
    result that answers no call (or one that is answered already).
    """

    messages: tuple[Message, ...]
    missing_results: int = 0
    is_orphan: bool = False


class PinStore(Protocol):
    """Where pins are kept. Whatever belongs to another owner is NotFound."""

    async def find_group(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> PinGroup:
        """Return the group of the message as it is stored now. Raises NotFound."""

    async def pin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...], check: CheckRoom
    ) -> tuple[Message, ...]:
        """Pin the messages and return them by position; those already pinned stay so.

        Nobody else pins in the session between the check and the pin; what `check` raises is raised and nothing is
        pinned. Raises NotFound.
        """

    async def unpin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...]
    ) -> tuple[Message, ...]:
        """Take the pins off the messages and return them by position; without a pin they stay so. Raises NotFound."""
