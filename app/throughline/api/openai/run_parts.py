"""The parts of a run: what lies before, between and after its waits. OpenAI's interface shows each as a response.

A part ends with a step whose calls wait for something from outside. What they are given is the input of the next part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from throughline.domain.message import Message, Role
from throughline.domain.run import Run, RunStatus
from throughline.domain.waiting import OUTSIDE, WaitKind


@dataclass(frozen=True, slots=True)
class RunPart:
    """One part of a run: `input` are results and steps from outside with which it began, `made` what followed.

    `is_last`: the run has no later part. Approved calls have their results in `made`, because the service ran them.
    """

    number: int = 0
    input: tuple[Message, ...] = ()
    made: tuple[Message, ...] = ()
    is_last: bool = True


@dataclass(slots=True)
class _Draft:
    """A part whose messages are still being read: a run may have thousands."""

    input: list[Message] = field(default_factory=list)
    made: list[Message] = field(default_factory=list)


def split_run(run: Run, messages: Sequence[Message]) -> tuple[RunPart, ...]:
    """Return the parts of the run, at least one. `messages` are all messages of the run, oldest first.

    Steps that the request brought are given to the first part. A run that was resumed and has stored nothing since has
    a last part without messages, also if it was cancelled or failed then.
    """
    drafts = [_Draft()]
    step_has_ended_part = True
    steps = 0
    for message in messages:
        if message.role is Role.USER:
            continue
        if message.role is Role.ASSISTANT:
            step_has_ended_part = False
            steps += 1
        if steps <= run.input.steps_brought:
            drafts[0].input.append(message)
            continue
        kind = message.metadata.get(OUTSIDE)
        if kind is not None and not step_has_ended_part:
            drafts.append(_Draft())
            step_has_ended_part = True
        is_made = kind is None or kind == WaitKind.APPROVAL
        (drafts[-1].made if is_made else drafts[-1].input).append(message)
    begun = run.input.echo.get("parts")
    is_resumed = not run.status.is_final or (isinstance(begun, list) and len(begun) > len(drafts))
    if run.status is not RunStatus.WAITING and is_resumed and len(drafts) == run.wait_count:
        drafts.append(_Draft())
    return tuple(
        RunPart(number, tuple(draft.input), tuple(draft.made), is_last=number == len(drafts) - 1)
        for number, draft in enumerate(drafts)
    )


def newest_part(run: Run) -> int:
    """Return the number of the run's newest part, whether it goes on, waits or is over."""
    return run.wait_count if run.waiting_for is None else run.wait_count - 1


def messages_of(part: RunPart, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages of the part among `messages`, those of its run; possibly none.

    The user's message belongs to the first part.
    """
    asked = (message for message in messages if message.role is Role.USER and part.number == 0)
    return (*asked, *part.input, *part.made)
