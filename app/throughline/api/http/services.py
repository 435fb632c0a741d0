"""What the routes need from the rest of the service, handed in by `assembly/`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from throughline.agents.registry import AgentRegistry
from throughline.context.context_report import ContextReport
from throughline.context.preview import Preview
from throughline.db.database import Database
from throughline.domain.clock import Clock
from throughline.domain.compaction import CompactionResult
from throughline.domain.ids import MessageId, SessionId, UserId
from throughline.domain.message import Content, Message, NewMessage
from throughline.domain.submission import Submission, Submitted
from throughline.memories.keeper import MemoryKeeper
from throughline.summary.reread import SummaryCost, Wish


@dataclass(frozen=True, slots=True)
class Readiness:
    """Each check by name, and whether it passed. Of `hints` none keeps the process from taking messages.

    `reasons` say of some that failed since when and why, in words for operators.
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
        """Whether it is ready and something else than a check fails."""
        return self.is_ready and not all(self.hints.values())


@dataclass(frozen=True, slots=True)
class Services:
    """The parts behind the routes.

    `submit` stores a message as a run; `preview_context` returns the plan for a message (None: an empty one);
    `pin_message` and `unpin_message` return the whole group of the message, a tool call and its results, as it stands
    afterwards; `count_message` returns a message with its tokens, as the named agent counts them; `check_ready` raises
    DatabaseUnavailable or DatabaseUnusable where the database does not serve; `shutting_down` is set once turns have
    had their grace: whoever still waits is then cut off.
    """

    database: Database
    memories: MemoryKeeper
    agents: AgentRegistry
    submit: Callable[[Submission], Awaitable[Submitted]]
    report_context: Callable[[UserId, SessionId], Awaitable[ContextReport]]
    preview_context: Callable[[UserId, SessionId, Content | None], Awaitable[Preview]]
    pin_message: Callable[[UserId, SessionId, MessageId], Awaitable[tuple[Message, ...]]]
    unpin_message: Callable[[UserId, SessionId, MessageId], Awaitable[tuple[Message, ...]]]
    summarize_now: Callable[[UserId, SessionId, Wish], Awaitable[CompactionResult]]
    estimate_summary: Callable[[UserId, SessionId, Wish], Awaitable[SummaryCost]]
    render_metrics: Callable[[], tuple[bytes, str]]
    check_ready: Callable[[], Awaitable[Readiness]]
    count_message: Callable[[str, NewMessage], Awaitable[NewMessage]]
    clock: Clock
    shutting_down: asyncio.Event = field(default_factory=asyncio.Event)

    def cut_off(self) -> None:
        """Set `shutting_down`, and wake those who wait for a run so that they see it."""
        self.shutting_down.set()
        self.database.notifier.wake_readers()
