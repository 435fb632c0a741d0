"""Record of what currently keeps this process from receiving or answering Slack's messages.

The Slack interface writes the record, and the readiness check shows it.
"""

from dataclasses import dataclass
from datetime import datetime

from throughline.domain.clock import Clock

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

    def _trouble(self, before: SlackProblem | None, reason: str) -> SlackProblem:
        return SlackProblem(self._clock.now() if before is None else before.since, reason)
