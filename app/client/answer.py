"""How a run ended, as the caller wants to know it."""

from dataclasses import dataclass

from app.domain.message import Message, text_of
from app.domain.run import Run


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
        """The answer's text, "" where there is none."""
        return "" if self.message is None else text_of(self.message.content)
