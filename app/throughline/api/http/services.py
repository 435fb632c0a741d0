"""Dependencies of the routes. `assembly/` creates them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.context.explain_context import ContextReport
from throughline.context.preview import Preview
from throughline.db.database import Database
from throughline.domain.clock import Clock
from throughline.domain.ids import MessageId, SessionId, UserId
from throughline.domain.message import Content, Message, NewMessage
from throughline.domain.model_window import ModelWindow
from throughline.domain.run import RunInput, Submission, Submitted
from throughline.domain.summary import CompactionResult
from throughline.ports.storage import History
from throughline.recall.memory_service import MemoryService
from throughline.summary.reread import SummaryCost, SummaryRequest


@dataclass(frozen=True, slots=True)
class Readiness:
    """Results of the readiness checks by name.

    All `checks` must pass before the process accepts messages; a failed hint only marks it as degraded. `reasons` tells
    operators for some failed checks since when and why they fail.
    """

    checks: Mapping[str, bool]
    hints: Mapping[str, bool] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether every check passed."""
        return all(self.checks.values())

    @property
    def is_degraded(self) -> bool:
        """Whether the process is ready although a hint fails."""
        return self.is_ready and not all(self.hints.values())


@dataclass(frozen=True, slots=True)
class Services:
    """Dependencies of the routes.

    - `submit` stores a message as a run.
    - `preview_context` returns the plan for the model call that a message would cause; None: an empty message.
    - `pin_message` and `unpin_message` return the message's whole group (a tool call and its results) after the change.
    - `check_input` raises InvalidInput for overrides and tools of a request that the session's agent does not allow;
      `check_input_for` does so for the agent of that name.
    - `count_messages` returns messages with their token counts, as the named agent counts them.
    - `agent_window` returns the window of an agent's next turn.
    - `check_ready` raises DatabaseUnavailable or DatabaseUnusable if the database does not serve.
    - `shutting_down` is set after the grace period for turns; requests that still wait are then cut off.
    """

    database: Database
    memories: MemoryService
    history: History
    agents: AgentRegistry
    submit: Callable[[Submission], Awaitable[Submitted]]
    report_context: Callable[[UserId, SessionId], Awaitable[ContextReport]]
    preview_context: Callable[[UserId, SessionId, Content | None], Awaitable[Preview]]
    pin_message: Callable[[UserId, SessionId, MessageId], Awaitable[tuple[Message, ...]]]
    unpin_message: Callable[[UserId, SessionId, MessageId], Awaitable[tuple[Message, ...]]]
    check_input: Callable[[UserId, SessionId, RunInput], Awaitable[None]]
    check_input_for: Callable[[str, RunInput], Awaitable[None]]
    summarize_now: Callable[[UserId, SessionId, SummaryRequest], Awaitable[CompactionResult]]
    estimate_summary: Callable[[UserId, SessionId, SummaryRequest], Awaitable[SummaryCost]]
    render_metrics: Callable[[], tuple[bytes, str]]
    check_ready: Callable[[], Awaitable[Readiness]]
    count_messages: Callable[[str, Sequence[NewMessage]], Awaitable[tuple[NewMessage, ...]]]
    agent_window: Callable[[AgentDefinition], Awaitable[ModelWindow]]
    clock: Clock
    shutting_down: asyncio.Event = field(default_factory=asyncio.Event)

    def cut_off(self) -> None:
        """Set `shutting_down` and wake the requests that wait for a run, so that they notice it."""
        self.shutting_down.set()
        self.database.notifier.wake_readers()
