"""Requests about a session's context outside its turns: report, preview, summary on demand, pins, overrides.

Every interface (REST, CLI, Slack) uses it. Each request finds the session by its owner, so that nobody reaches another
user's session.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from throughline.context.explain_context import ContextReport
from throughline.context.policy import Recall
from throughline.context.preview import Preview
from throughline.domain.basic_types import MessageId, SessionId, UserId
from throughline.domain.message import Content, Message, NewMessage, text_of
from throughline.domain.prompt import NO_OVERRIDES
from throughline.domain.run import RunInput
from throughline.domain.session import Session
from throughline.domain.summary import CompactionResult
from throughline.ports.storage import PinStore
from throughline.turn.apply_overrides import RequestChecker
from throughline.turn.daily_budget import check_daily_budget
from throughline.turn.prompting.context_report import preview_context, report_context
from throughline.turn.prompting.pins import pin_message, unpin_message
from throughline.turn.prompting.planning import count_all_new
from throughline.turn.recall_history import Asked, recall_history
from throughline.turn.recall_memories import recall_memories
from throughline.turn.state import TurnDependencies
from throughline.turn.summary.reread import SummaryCost, SummaryRequest
from throughline.turn.summary.summarize_now import estimate_summary, summarize_now


class SessionStore(Protocol):
    """Interface of the storage in which sessions are found."""

    async def get(self, owner_id: UserId, session_id: SessionId) -> Session:
        """Return the session. Raises NotFound also for a session of another owner."""


@dataclass(frozen=True, slots=True)
class ContextRequests:
    """Handler of requests about a session's context: report, preview, summary on demand and pins.

    Every method that takes a session raises NotFound if the owner does not have it. `summary_slot` acquires one of the
    process's few slots for summaries on demand. It raises TurnLimitReached if no slot is free, and SummaryLimitReached
    if the owner already uses its share of them.
    """

    dependencies: TurnDependencies
    sessions: SessionStore
    pins: PinStore
    summary_slot: Callable[[UserId], AbstractAsyncContextManager[None]]

    async def report(self, owner_id: UserId, session_id: SessionId) -> ContextReport:
        """Return how full the session's context is, and what takes its tokens."""
        return await report_context(self.dependencies, await self.sessions.get(owner_id, session_id))

    async def report_with_quotations(self, owner_id: UserId, session_id: SessionId) -> ContextReport:
        """Return the report together with the earlier messages and memories that the newest turn's prompt quoted.

        It costs one SQL statement more than `report`.
        """
        report = await self.report(owner_id, session_id)
        quoted, memories = await self.dependencies.events.newest_quoted(session_id)
        return replace(report, quoted=quoted, quoted_memories=memories)

    async def preview(self, owner_id: UserId, session_id: SessionId, content: Content | None) -> Preview:
        """Return what the prompt of a turn with this message would show, and the compaction it would trigger.

        `content` None stands for an empty message.
        """
        session = await self.sessions.get(owner_id, session_id)
        policy = self.dependencies.agents.get(session.agent).context
        asked = Asked(owner_id, session_id, text_of(content or ""))
        find = partial(recall_history, self.dependencies, policy.recall, asked)
        recalled = Recall.OFF if session.is_shared else policy.memories
        memories = await recall_memories(self.dependencies, recalled, asked)
        return await preview_context(self.dependencies, session, content or "", find, memories)

    async def summarize(self, owner_id: UserId, session_id: SessionId, request: SummaryRequest) -> CompactionResult:
        """Summarise all messages but the newest ones. The request may also read summarised messages again.

        Raises DailyBudgetSpent, DailyBudgetReserved.
        """
        async with self.summary_slot(owner_id):
            session = await self.sessions.get(owner_id, session_id)
            await check_daily_budget(self.dependencies, self.dependencies.agents.get(session.agent), owner_id)
            return await summarize_now(self.dependencies, session, request)

    async def estimate(self, owner_id: UserId, session_id: SessionId, request: SummaryRequest) -> SummaryCost:
        """Return how much `summarize` would read and cost with this request."""
        return await estimate_summary(self.dependencies, await self.sessions.get(owner_id, session_id), request)

    async def check_summary(self, owner_id: UserId, session_id: SessionId) -> None:
        """Raise what would refuse a summary on demand now: DailyBudgetSpent, DailyBudgetReserved, SummaryInProgress.

        Whether a slot is free is not checked: each soon is.
        """
        session = await self.sessions.get(owner_id, session_id)
        await check_daily_budget(self.dependencies, self.dependencies.agents.get(session.agent), owner_id)
        await self.dependencies.summaries.check_lease_free(session_id)

    async def pin(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        """Pin the message together with its group (a tool call and its results); return the group."""
        return await pin_message(
            self.dependencies, self.pins, await self.sessions.get(owner_id, session_id), message_id
        )

    async def unpin(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        """Remove the pin of the message and of its group; return the group."""
        return await unpin_message(self.pins, await self.sessions.get(owner_id, session_id), message_id)

    async def check_input(self, owner_id: UserId, session_id: SessionId, given: RunInput) -> None:
        """Raise InvalidInput if the session's agent does not allow what the request overrides or brings.

        Raises NotFound.
        """
        if given.overrides != NO_OVERRIDES or given.client_tools:
            session = await self.sessions.get(owner_id, session_id)
            await self.check_input_for(session.agent, given)

    async def check_input_for(self, agent: str, given: RunInput) -> None:
        """Raise InvalidInput if the agent does not allow what the request overrides or brings."""
        checker = RequestChecker(self.dependencies.agents, self.dependencies.models, self.dependencies.tools)
        await checker.check(agent, given)

    async def count(self, agent: str, messages: Sequence[NewMessage]) -> tuple[NewMessage, ...]:
        """Return the messages with their token counts, made by the token counter of the named agent."""
        counter = self.dependencies.make_counter(self.dependencies.agents.get(agent).context.token_counter)
        return await count_all_new(messages, counter)
