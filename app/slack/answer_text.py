"""What a run says, as one text: while it grows from its events, and once it has ended from what is stored."""

from collections.abc import Sequence

from app.domain.events import AnswerReset, MessageCompleted, MessageDelta, RunEvent, ToolCalled
from app.domain.message import text_of
from app.domain.run import Run, RunError, RunStatus

NOTHING_SAID = "_(no text)_"
STOPPED = "_Stopped._"
LONGEST_SENTENCE = 300


class GrowingAnswer:
    """Joins the texts of a run's steps as its events tell them; `status` is what it is at when it says nothing."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self._steps: list[str] = []
        self._current = ""
        self.status = "is thinking…"

    @property
    def text(self) -> str:
        """All that was said so far."""
        return _joined([*self._steps, self._current])

    def feed(self, event: RunEvent) -> None:
        """Take one event."""
        match event.event:
            case MessageDelta(text=text):
                self._current += text
            case MessageCompleted(message=message):
                self._steps.append(text_of(message.content))
                self._current = ""
            case ToolCalled(call=call):
                self.status = f"is using {call.name}…"
            case AnswerReset():
                self._steps.clear()
                self._current = ""
            case _:
                pass


def final_text(run: Run, stored: Sequence[str], shown: str) -> str:
    """Return what is to stand in Slack for an ended run, '' for one that was withdrawn before it began.

    `stored` are its assistant messages; `shown` is what was streamed, which a failed run has not stored.
    """
    said = _joined(stored)
    match run.status:
        case RunStatus.SUCCEEDED:
            return said or NOTHING_SAID
        case RunStatus.CANCELLED:
            begun = said or (STOPPED if run.started_at is not None else "")
            return f"{said}\n\n{STOPPED}" if said else begun
        case _:
            before = shown if shown.startswith(said) else said
            return _joined([before, sentence(run.error)])


def sentence(error: RunError | None) -> str:
    """Return what a person is told of a failure: one short sentence, nothing of our inside."""
    told = error.detail if error is not None and error.detail else "Something went wrong here. Send it again."
    line = " ".join(told.split())
    return f":warning: {line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 1] + '…'}"


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())
