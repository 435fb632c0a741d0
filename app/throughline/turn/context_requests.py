"""What users ask of a session's context outside its turns, from any door: each session is found in its owner's name."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from throughline.context.context_report import ContextReport
from throughline.context.preview import Preview
from throughline.domain.compaction import CompactionResult
from throughline.domain.ids import MessageId, SessionId, UserId
from throughline.domain.message import Content, Message, NewMessage
from throughline.domain.session import Session
from throughline.ports.pins import PinStore
from throughline.prompting.context_report import preview_context, report_context
from throughline.prompting.pins import pin_message, unpin_message
from throughline.prompting.planning import count_new
from throughline.summary.reread import SummaryCost, Wish
from throughline.summary.summarize_now import estimate_summary, summarize_now
from throughline.turn.state import TurnDependencies


class SessionStore(Protocol):
    """Where sessions are found."""

    async def get(self, owner_id: UserId, session_id: SessionId) -> Session:
        """Return the session. Raises NotFound, also for somebody else's."""


@dataclass(frozen=True, slots=True)
class ContextRequests:
    """Answers them. All methods raise NotFound for a session that is not the owner's.

    `summary_place` is a place for a summary on demand, which a process has few of; it raises TurnLimitReached or
    SummaryLimitReached where there is none.
    """

    dependencies: TurnDependencies
    sessions: SessionStore
    pins: PinStore
    summary_place: Callable[[UserId], AbstractAsyncContextManager[None]]

    async def report(self, owner_id: UserId, session_id: SessionId) -> ContextReport:
        """Return how full the context is, and with what."""
        return await report_context(self.dependencies, await self.sessions.get(owner_id, session_id))

    async def preview(self, owner_id: UserId, session_id: SessionId, content: Content | None) -> Preview:
        """Return what a turn with this message (None: an empty one) would send and set off."""
        return await preview_context(self.dependencies, await self.sessions.get(owner_id, session_id), content or "")

    async def summarize(self, owner_id: UserId, session_id: SessionId, wish: Wish) -> CompactionResult:
        """Summarise all but the newest messages; a wish reaches those that are summarised, too."""
        async with self.summary_place(owner_id):
            session = await self.sessions.get(owner_id, session_id)
            return await summarize_now(self.dependencies, session, wish)

    async def estimate(self, owner_id: UserId, session_id: SessionId, wish: Wish) -> SummaryCost:
        """Return what `summarize` would read and cost."""
        return await estimate_summary(self.dependencies, await self.sessions.get(owner_id, session_id), wish)

    async def pin(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        """Pin the message with its group; return the group."""
        return await pin_message(
            self.dependencies, self.pins, await self.sessions.get(owner_id, session_id), message_id
        )

    async def unpin(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        """Take the pin off the message and its group; return the group."""
        return await unpin_message(self.pins, await self.sessions.get(owner_id, session_id), message_id)

    async def count(self, agent: str, message: NewMessage) -> NewMessage:
        """Return the message with its tokens, as the named agent counts them."""
        return await count_new(
            message, self.dependencies.make_counter(self.dependencies.agents.get(agent).context.token_counter)
        )
