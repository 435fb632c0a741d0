"""How the double misbehaves on demand: refusals, rate limits, server errors, cut connections."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field


class Refused(Exception):
    """The method answers `{"ok": false, "error": …}`."""

    def __init__(self, error: str, **more: str) -> None:
        super().__init__(error)
        self.error = error
        self.more = more


@dataclass(frozen=True, slots=True)
class Failure:
    """What becomes of a call: a Slack `error`, an HTTP `status`, a cut connection (`drops`), or a `delay`.

    Without an `error` the body is a proxy's words, which `content_type` may call JSON all the same.

    `acts` is True where the call has its effect all the same and only its answer is lost.
    """

    error: str = ""
    status: int = 200
    retry_after: int = 0
    drops: bool = False
    acts: bool = False
    delay_seconds: float = 0.0
    content_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `calls` in `seconds`, as https://docs.slack.dev/apis/web-api/rate-limits/ has it for each method."""

    calls: int
    seconds: float
    retry_after: int = 1


TIERS = {
    "chat.startStream": Limit(20, 60),
    "chat.appendStream": Limit(100, 60),
    "chat.stopStream": Limit(20, 60),
    "chat.update": Limit(50, 60),
    "conversations.replies": Limit(50, 60),
    "users.info": Limit(100, 60),
}
"""The lowest number of each method's tier, from the method pages below https://docs.slack.dev/reference/methods/."""


@dataclass(slots=True)
class Rules:
    """Failures are used up in order, each by one call of its method; limits hold all the time."""

    now: Callable[[], float]
    limits: dict[str, Limit] = field(default_factory=dict)
    _failures: defaultdict[str, deque[Failure]] = field(default_factory=lambda: defaultdict(deque))
    _seen: defaultdict[str, deque[float]] = field(default_factory=lambda: defaultdict(deque))

    def fail(self, method: str, *failures: Failure) -> None:
        """Let the next calls of the method fail."""
        self._failures[method].extend(failures)

    def take(self, method: str) -> Failure | None:
        """Return what is to become of this call, None where it may go on."""
        if self._failures[method]:
            return self._failures[method].popleft()
        limit = self.limits.get(method)
        return None if limit is None else self._over(method, limit)

    def complaints(self) -> list[str]:
        """Return the failures that no call has met."""
        return [f"{method}: {len(waiting)} unused" for method, waiting in self._failures.items() if waiting]

    def _over(self, method: str, limit: Limit) -> Failure | None:
        seen, now = self._seen[method], self.now()
        while seen and now - seen[0] > limit.seconds:
            seen.popleft()
        if len(seen) >= limit.calls:
            return Failure(status=429, retry_after=limit.retry_after)
        seen.append(now)
        return None
