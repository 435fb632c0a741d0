"""Configuration of the Slack interface, and the bot's identity in the workspace."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import Clock, SessionId, UserId
from throughline.domain.summary import CompactionResult
from throughline.http.services import Readiness
from throughline.slack.store.database import SlackDatabase
from throughline.slack.store.people import SlackId
from throughline.turn.summary.reread import SummaryRequest

# Record of what currently keeps this process from receiving or answering Slack's messages. The Slack interface writes
# the record, and the readiness check shows it.

NOT_YET = "not connected yet"


@dataclass(frozen=True, slots=True)
class SlackProblem:
    """A problem: since when it lasts and why, as a sentence or Slack's error code, never a token or a message."""

    since: datetime
    reason: str

    def __str__(self) -> str:
        """Return the problem as operators read it."""
        return f"since {self.since:%Y-%m-%d %H:%M:%S} UTC: {self.reason}"


class SlackHealth:
    """Record of whether Slack's events can reach this process, and whether Slack accepts its bot token.

    Events count as unable to arrive until `set_connected` is called.
    """

    def __init__(self, clock: Clock, *, is_all: bool) -> None:
        """Start as not connected. `is_all` is true if the process serves Slack and nothing else."""
        self.is_all = is_all
        self._clock = clock
        self._unheard: SlackProblem | None = SlackProblem(clock.now(), NOT_YET)
        self._refused: SlackProblem | None = None

    @property
    def disconnected(self) -> SlackProblem | None:
        """Why no events can arrive, None if they can."""
        return self._unheard

    @property
    def token_refused(self) -> SlackProblem | None:
        """Why nothing can be delivered, None if Slack is not known to refuse the bot token."""
        return self._refused

    def set_connected(self) -> None:
        """Record that events can arrive."""
        self._unheard = None

    def set_disconnected(self, reason: str) -> None:
        """Record why no events can arrive. If that was so before, its start time is kept."""
        self._unheard = self._trouble(self._unheard, reason)

    def note_token_refused(self, reason: str) -> None:
        """Record the error code with which Slack refuses the token. If that was so before, its start time is kept."""
        self._refused = self._trouble(self._refused, reason)

    def note_token_accepted(self) -> None:
        """Record that Slack accepts the token."""
        self._refused = None

    def added_to(self, ready: Readiness) -> Readiness:
        """Return the readiness with the state of Slack added.

        A process that serves only Slack is not ready while it cannot receive events.
        """
        heard, may_answer = {"slack": self.disconnected is None}, {"slack_token": self.token_refused is None}
        troubles = {"slack": self.disconnected, "slack_token": self.token_refused}
        checks, hints = (heard, may_answer) if self.is_all else ({}, heard | may_answer)
        reasons = {name: str(trouble) for name, trouble in troubles.items() if trouble is not None}
        return Readiness({**ready.checks, **checks}, {**ready.hints, **hints}, {**ready.reasons, **reasons})

    def _trouble(self, before: SlackProblem | None, reason: str) -> SlackProblem:
        return SlackProblem(self._clock.now() if before is None else before.since, reason)


@dataclass(frozen=True, slots=True)
class SlackServices:
    """Dependencies of the Slack interface."""

    database: Database
    slack: SlackDatabase
    report_context: Callable[[UserId, SessionId], Awaitable[ContextReport]]
    summarize_now: Callable[[UserId, SessionId, SummaryRequest], Awaitable[CompactionResult]]
    clock: Clock


@dataclass(frozen=True, slots=True)
class SlackConfig:
    """Configuration of the Slack interface.

    - `link_by_email`: a workspace member with a confirmed e-mail address is linked to the user of that name.
    - `concurrency`: number of answers delivered at once, including those that wait for a rate limit.
    - `lease_seconds`: how long a delivery stays claimed after the process that claimed it has died.
    - `signing_secret` is for events over HTTP, `app_token` for Socket Mode; '' if that way is not used.
    """

    bot_token: str = field(repr=False)
    signing_secret: str = field(default="", repr=False)
    app_token: str = field(default="", repr=False)
    api_url: str = "https://slack.com/api/"
    link_by_email: bool = False
    concurrency: int = 500
    lease_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot's identity as `auth.test` returns it.

    `team_id` is the id of the enterprise if the app is installed for the whole enterprise. `url` is the address of the
    workspace with a final slash, '' if Slack names none.
    """

    team_id: str
    team_name: str
    bot_user_id: str
    bot_id: str
    workspace_id: str
    url: str = ""

    def permalink(self, channel_id: str, ts: str, thread_ts: str) -> str:
        """Return the address of a message, '' if that of the workspace is unknown.

        It is made as chat.getPermalink makes it, without a call to Slack for each message.
        """
        place = f"{self.url}archives/{channel_id}/p{ts.replace('.', '')}"
        in_thread = "" if ts == thread_ts else f"?thread_ts={thread_ts}&cid={channel_id}"
        return f"{place}{in_thread}" if self.url.startswith("https://") else ""

    def person(self, user_id: str, team_id: str, *, enterprise_id: str = "", may_be_outsider: bool = True) -> SlackId:
        """Return the person's id, in which members have the bot's `team_id` and outsiders their own.

        Outsiders come from other organizations, through shared channels. `team_id` and `enterprise_id` are the person's
        home as Slack reports it, '' if it reports none. In an enterprise installation, Slack may report any workspace,
        or the enterprise itself, as a member's home. `may_be_outsider` is False if only members are possible.
        """
        is_ours = team_id in {"", self.workspace_id, self.team_id}
        if not is_ours and self.team_id != self.workspace_id:
            is_ours = enterprise_id == self.team_id or not may_be_outsider
        return SlackId(self.team_id if is_ours else team_id, user_id)
