"""The text of a run: built from its events while it is in progress, and from stored messages after its end."""

from collections.abc import Sequence

from throughline.domain.events import AnswerReset, MessageCompleted, MessageDelta, RunEvent, ToolAnswered, ToolCalled
from throughline.domain.message import text_of
from throughline.domain.run import Run, RunError, RunStatus
from throughline.slack.markdown.convert import settled

EMPTY_ANSWER = "_(no text)_"
STOPPED = "_Stopped._"
LONGEST_SENTENCE = 300
BETWEEN_STEPS = "\n\n"


class GrowingAnswer:
    """Text of a run in progress, joined from the texts of its steps. `changes` counts the changes of the text."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._current = ""
        self._tools: dict[str | None, str] = {}
        self.changes = 0

    @property
    def text(self) -> str:
        """All text of the run so far."""
        return _joined([*self._steps, self._current])

    @property
    def is_silent(self) -> bool:
        """Whether the current step has no text yet: a tool is running, or the model has not begun."""
        return not self._current.strip()

    @property
    def status(self) -> str:
        """Description of the run's current activity while it produces no text."""
        return f"is using {list(self._tools.values())[-1]}…" if self._tools else "is thinking…"

    def settled_text(self) -> str:
        """Return the beginning of the text whose display in Slack cannot be changed by later text.

        A complete step is included as a whole, because a blank line follows it.
        """
        text = self.text
        return text[: settled(f"{text}{BETWEEN_STEPS}" if self.is_silent else text)]

    def feed(self, event: RunEvent) -> None:
        """Add one run event: text, a tool call or its result, or the reset of the answer. Ignore other events."""
        match event.event:
            case MessageDelta(text=text):
                self._say(self._steps, self._current + text)
            case MessageCompleted(message=message):
                self._say([*self._steps, text_of(message.content)], "")
            case ToolCalled(call=call):
                self._tools[call.id] = call.name
            case ToolAnswered(message=message):
                self._tools.pop(message.tool_call_id, None)
            case AnswerReset():
                self._tools.clear()
                self._say([], "")
            case _:
                pass

    def _say(self, steps: Sequence[str], current: str) -> None:
        self._steps, self._current = list(steps), current
        self.changes += 1


def final_text(run: Run, stored: Sequence[str], shown: str) -> str:
    """Return the text that Slack shows for an ended run, '' for a run cancelled before it began.

    `stored` are the run's assistant messages. `shown` is the streamed text, which a failed run has not stored.
    """
    said = _joined(stored)
    match run.status:
        case RunStatus.SUCCEEDED:
            return said or EMPTY_ANSWER
        case RunStatus.CANCELLED:
            return _joined([said, STOPPED]) if said or run.started_at is not None else ""
        case _:
            before = shown if shown.startswith(said) else said
            return _joined([before, sentence(run.error)])


def text_before_rest(stored: Sequence[str]) -> str:
    """Return the text of a waiting run's steps up to where that of the next step begins, '' without text."""
    said = _joined(stored)
    return f"{said}{BETWEEN_STEPS}" if said else ""


def sentence(error: RunError | None) -> str:
    """Return the error text that a person sees: one short sentence without internal details."""
    text = (
        error.detail if error is not None and error.detail else "An unexpected error occurred. Send the message again."
    )
    line = " ".join(text.split())
    return f":warning: {line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 1] + '…'}"


def _joined(texts: Sequence[str]) -> str:
    return BETWEEN_STEPS.join(text for text in texts if text.strip())
