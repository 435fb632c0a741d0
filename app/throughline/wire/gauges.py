"""The gauges of a context, which the command line and Slack draw: messages (N), tokens (K) and the window."""

from dataclasses import dataclass

from throughline.context.explain_context import ContextReport
from throughline.wire.context import ContextOut


@dataclass(frozen=True, slots=True)
class Gauge:
    """One bar: `used` of `limit`, which is None or 0 without a limit. `mark` is another value on the same scale.

    `is_firing`: this gauge triggers the next action.
    """

    label: str
    used: int
    limit: int | None
    mark: int | None = None
    is_firing: bool = False

    @property
    def fires_at(self) -> int:
        """Value from which the bar is red: the mark if there is one, else the limit, 0 if there is neither."""
        return self.mark or self.limit or 0

    def filled_of(self, cells: int) -> int:
        """Return how many of the cells are filled: at least one above 0, and all of them only from the limit on."""
        if not self.limit or self.used <= 0:
            return 0
        if self.used >= self.limit:
            return cells
        return min(cells - 1, max(1, round(self.used * cells / self.limit)))


def context_gauges(context: ContextOut | ContextReport, labels: tuple[str, str, str]) -> tuple[Gauge, Gauge, Gauge]:
    """Return the gauges of messages, tokens and the window, with these labels."""
    messages, tokens, window = labels
    since, firing = context.messages_since_summary, context.next_trigger
    return (
        Gauge(messages, since, context.messages_threshold, is_firing=firing == "messages"),
        Gauge(tokens, context.tokens_since_summary, context.tokens_threshold, is_firing=firing == "tokens"),
        Gauge(
            window,
            context.total_tokens,
            context.context_window,
            mark=context.threshold_tokens,
            is_firing=firing == "window",
        ),
    )
