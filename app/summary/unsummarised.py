"""What a compaction has to read, batch by batch: what the plan names, after what lies before the loaded rows."""

from dataclasses import dataclass

from app.context.plan import ContextPlan, backlog
from app.domain.conversation import Conversation
from app.domain.message import Message, NewMessage
from app.domain.session import Session
from app.ports.storage import MessageStore
from app.prompting.conversation import with_summary
from app.prompting.planning import context_input, plan_off_loop
from app.prompting.ready_agent import ReadyAgent

PAGE_MESSAGES = 20
"""Few, as each may be megabytes."""

BATCH_MESSAGES = 200


@dataclass(slots=True)
class Unsummarised:
    """The messages that `plan` wants summarised. `pending` is the user's message while it is not stored yet."""

    messages: MessageStore
    agent: ReadyAgent
    conversation: Conversation
    pending: NewMessage | None
    plan: ContextPlan

    async def next_batch(self, session: Session) -> tuple[Message, ...]:
        """Return what follows the cursor of `session`, which is as it will be once all before is adopted.

        Empty where nothing is left. Raises DatabaseUnavailable.
        """
        if self.plan.must_load_first and session.summary_through_position > self._position:
            there = with_summary(self.conversation, session)
            self.plan = await plan_off_loop(context_input(self.agent, there, self.pending), forced=self.plan.cause)
        if self.plan.must_load_first:
            return await self._read_backlog(session)
        return tuple(row for row in self.plan.to_summarise if row.position > session.summary_through_position)

    @property
    def _position(self) -> int:
        return self.conversation.session.summary_through_position

    async def _read_backlog(self, session: Session) -> tuple[Message, ...]:
        """Read what follows the cursor until it fills a window or is many messages, and on to the end of a group."""
        rows: tuple[Message, ...] = ()
        after = session.summary_through_id
        while True:
            page = await self.messages.get_messages_after(session.id, after, limit=PAGE_MESSAGES)
            rows = (*rows, *page)
            behind = backlog(rows, self.plan.through_position)
            if len(page) < PAGE_MESSAGES or (behind and self._is_much(rows)):
                return behind
            after = page[-1].id

    def _is_much(self, rows: tuple[Message, ...]) -> bool:
        tokens = sum(row.token_count for row in rows)
        return len(rows) >= BATCH_MESSAGES or tokens >= self.agent.budget.window_tokens
