"""What recall tools need from outside: searching and reading the stored history, always in a user's name."""

from typing import Protocol

from throughline.domain.ids import SessionId, UserId
from throughline.domain.message import Message
from throughline.domain.recall import Found, HistoryQuery


class History(Protocol):
    """The stored history. A session that is missing and one that is somebody else's are the same NotFound."""

    async def search(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> Found:
        """Return what matches best in the session, in all the owner's sessions where it is None. Raises NotFound."""

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        """Return messages by position, oldest first, as many as one page holds. Raises NotFound."""
