"""How a run ended, as the caller wants to know it."""

from dataclasses import dataclass

from throughline.domain.errors import PermanentError
from throughline.domain.message import Message, text_of
from throughline.domain.run import Run, RunStatus

AGAIN = "To ask again, submit the message with another idempotency key."


class NotAnswered(PermanentError):
    """A run whose answer was asked for has failed or was cancelled: `run` tells which, and why."""

    code = "not_answered"

    def __init__(self, detail: str, run: Run) -> None:
        """Keep `detail` and the run as it ended."""
        super().__init__(detail)
        self.run = run


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended run and its answer.

    `message` is None where the run failed, or was cancelled before the model said anything; `run.status` tells which,
    `run.error` why.
    """

    run: Run
    message: Message | None

    @property
    def text(self) -> str:
        """What was written, however the run ended: "" where nothing was, half an answer where it was cancelled."""
        return "" if self.message is None else text_of(self.message.content)

    def answer(self) -> str:
        """Return the answer's text. Raises NotAnswered unless the run succeeded."""
        if self.run.status is RunStatus.SUCCEEDED:
            return self.text
        raise NotAnswered(_why(self.run), self.run)


def _why(run: Run) -> str:
    if run.status is RunStatus.CANCELLED:
        return f"Run {run.id} was cancelled and has no whole answer. {AGAIN}"
    reason = f" ({run.error.type}): {run.error.detail}" if run.error is not None else "."
    return f"Run {run.id} failed{reason} {AGAIN}"
