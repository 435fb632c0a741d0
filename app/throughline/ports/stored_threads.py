"""Conversations that another program stored, thread by thread; the command line imports them."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from throughline.domain.basic_types import JsonObject


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that an import does not take over. `kind` says what and why, `place` where it stands."""

    kind: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class StoredThread:
    """The newest state of a thread of LangGraph.

    `messages` have the members of LangChain's messages; `type` is their kind, such as `human`. `written_at` is the time
    of the state in ISO 8601, '' if it is not stored. `left_out` is all of the thread that is not in `messages`.
    """

    id: str
    checkpoint_id: str
    written_at: str
    messages: tuple[JsonObject, ...]
    left_out: tuple[LeftOut, ...] = ()


class StoredThreads(Protocol):
    """Threads in a database, which is only read."""

    def ids(self) -> AsyncIterator[str]:
        """Yield the ids of all threads, in order."""

    async def read(self, thread_id: str) -> StoredThread:
        """Return the newest state of a thread. Raises InvalidInput if its messages cannot be decoded."""
