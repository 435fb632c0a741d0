"""The end of a run, or its wait for something from outside, as `Client.wait` returns it."""

from dataclasses import dataclass

from throughline.domain.errors import PermanentError
from throughline.domain.message import Message, text_of
from throughline.domain.run import Run, RunStatus

AGAIN = "To ask again, submit the message with another idempotency key."


class NotAnswered(PermanentError):
    """Error of `Ended.answer` for a run that failed, was cancelled or waits; `run` is that run."""

    code = "not_answered"

    def __init__(self, detail: str, run: Run) -> None:
        super().__init__(detail)
        self.run = run


@dataclass(frozen=True, slots=True)
class Ended:
    """An ended run and its answer, or a run that waits for something from outside.

    `message` is None if the run waits or failed, or was cancelled before the model wrote anything. A failed run has one
    only if its answer does not fit the response format. `run.status` says which, `run.error` why. `run.waiting_for` is
    set while the run waits: what its calls need, for `Client.resume`.
    """

    run: Run
    message: Message | None

    @property
    def text(self) -> str:
        """The text that was written, however the run ended: '' if none, half an answer if the run was cancelled."""
        return "" if self.message is None else text_of(self.message.content)

    def answer(self) -> str:
        """Return the answer's text. Raises NotAnswered unless the run succeeded."""
        if self.run.status is RunStatus.SUCCEEDED:
            return self.text
        raise NotAnswered(_why(self.run), self.run)


def _why(run: Run) -> str:
    if run.waiting_for is not None:
        calls = ", ".join(f"{call.kind} of {call.name} ({call.id})" for call in run.waiting_for.calls)
        return f"Run {run.id} waits for: {calls}. Give it with `resume`."
    if run.status is RunStatus.CANCELLED:
        return f"Run {run.id} was cancelled and has no complete answer. {AGAIN}"
    reason = f" ({run.error.type}): {run.error.detail}" if run.error is not None else "."
    return f"Run {run.id} failed{reason} {AGAIN}"
