"""What a waiting call is given: the arguments of `Client.resume`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from throughline.client.arguments import read_storable_object, read_text
from throughline.domain.errors import InvalidInput, PermanentError
from throughline.domain.message import Message, clean_text, text_of
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import MAX_OUTPUT, MAX_REASON, Decision, Resolution

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


def approve(call_id: str) -> Resolution:
    """Let the call be run."""
    return Resolution(_call(call_id), decision=Decision.APPROVE)


def reject(call_id: str, reason: str = "") -> Resolution:
    """Do not let the call be run; the model is told the reason. Raises InvalidInput for a reason that is too long."""
    return Resolution(_call(call_id), _text(reason, "reason", MAX_REASON), decision=Decision.REJECT)


def edit(call_id: str, arguments: Mapping[str, object]) -> Resolution:
    """Let the call be run with these arguments. Raises InvalidInput unless JSON can represent them."""
    written = json.dumps(read_storable_object(arguments, field="arguments"), ensure_ascii=False)
    return Resolution(_call(call_id), decision=Decision.EDIT, arguments=written)


def answer(call_id: str, text: str) -> Resolution:
    """Answer the question of the call. Raises InvalidInput for a text that is too long."""
    return Resolution(_call(call_id), _text(text, "text", MAX_OUTPUT))


def result(call_id: str, text: str, *, is_error: bool = False) -> Resolution:
    """Return the result of a tool that this program ran. `is_error`: the tool failed, and the text says why.

    Raises InvalidInput for a text that is too long.
    """
    return Resolution(_call(call_id), _text(text, "text", MAX_OUTPUT), is_error)


def _call(call_id: str) -> str:
    return clean_text(read_text(call_id, field="call_id"))


def _text(given: str, field: str, most: int) -> str:
    text = clean_text(read_text(given, field=field))
    if len(text) > most:
        raise InvalidInput(f"{field} has {len(text)} characters; at most {most} are allowed.", field=field)
    return text
