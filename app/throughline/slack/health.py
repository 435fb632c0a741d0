"""What keeps this process from taking part in Slack just now: noted by the door, shown by readiness."""

from dataclasses import dataclass
from datetime import datetime

from throughline.domain.clock import Clock

NOT_YET = "not connected yet"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Since when something does not work, and why: a sentence or Slack's word for it, never a token or a text."""

    since: datetime
    reason: str

    def __str__(self) -> str:
        """Return it as operators read it."""
        return f"since {self.since:%Y-%m-%d %H:%M:%S} UTC: {self.reason}"


class SlackHealth:
    """Whether events can reach this process, which they cannot before somebody notes so, and whether it may answer."""

    def __init__(self, clock: Clock, *, is_all: bool) -> None:
        """`is_all`: this process is there for Slack and nothing else."""
        self.is_all = is_all
        self._clock = clock
        self._unheard: Trouble | None = Trouble(clock.now(), NOT_YET)
        self._refused: Trouble | None = None

    @property
    def unheard(self) -> Trouble | None:
        """Why no events can arrive, None where they can."""
        return self._unheard

    @property
    def token_refused(self) -> Trouble | None:
        """Why nothing can be delivered, None where the bot token holds as far as is known."""
        return self._refused

    def note_heard(self) -> None:
        """Note that events can arrive."""
        self._unheard = None

    def note_unheard(self, reason: str) -> None:
        """Note why no events can arrive; since when stays what it was."""
        self._unheard = self._trouble(self._unheard, reason)

    def note_token_refused(self, reason: str) -> None:
        """Note Slack's word for why the token does not hold; since when stays what it was."""
        self._refused = self._trouble(self._refused, reason)

    def note_token_accepted(self) -> None:
        """Note that the token holds."""
        self._refused = None

    def _trouble(self, before: Trouble | None, reason: str) -> Trouble:
        return Trouble(self._clock.now() if before is None else before.since, reason)
