"""Dependencies of the Slack interface. `assembly/` creates them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from throughline.context.context_report import ContextReport
from throughline.db.database import Database
from throughline.db.slack.database import SlackDatabase
from throughline.domain.clock import Clock
from throughline.domain.ids import SessionId, UserId
from throughline.domain.summary import CompactionResult
from throughline.summary.reread import SummaryRequest


@dataclass(frozen=True, slots=True)
class SlackServices:
    """Dependencies of the Slack interface."""

    database: Database
    slack: SlackDatabase
    report_context: Callable[[UserId, SessionId], Awaitable[ContextReport]]
    summarize_now: Callable[[UserId, SessionId, SummaryRequest], Awaitable[CompactionResult]]
    clock: Clock
