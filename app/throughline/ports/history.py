"""The interface of recall tools to the stored history: search and read, always on behalf of a user."""

from typing import Protocol

from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import Message
from throughline.domain.recall import Found, HistoryQuery


class History(Protocol):
    """The stored message history. A missing session and another user's session raise the same NotFound."""

    async def search(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> Found:
        """Return the best matches in the session, or in all the owner's sessions if `session_id` is None.

        Raises NotFound.
        """

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        """Return the messages at positions `first` to `last`, oldest first, at most one page of them.

        Raises NotFound.
        """
