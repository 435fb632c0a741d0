"""Reconstruction of a run's events from its stored messages, for readers after the events were deleted.

The run has ended, or waits for something from outside.
"""

from collections.abc import Iterator

from throughline.domain.events import (
    REPLAYED_END_SEQ,
    AnswerReset,
    Event,
    MessageCompleted,
    RunEnded,
    RunEvent,
    RunWaiting,
    ToolAnswered,
    ToolCalled,
)
from throughline.domain.message import Message, Role
from throughline.domain.run import Run, RunStatus


def replay_events(run: Run, messages: tuple[Message, ...]) -> tuple[RunEvent, ...]:
    """Return the events of an ended or waiting run: `reset`, one for each message and tool call, and the last one.

    The numbers end with REPLAYED_END_SEQ and match no stored event. A reader that resumes after any of them except the
    last gets all events again.
    """
    events = [AnswerReset(run.attempt), *_steps(messages), last_event(run, messages)]
    first = REPLAYED_END_SEQ - len(events) + 1
    return tuple(RunEvent(run.id, first + index, event) for index, event in enumerate(events))


def last_event(run: Run, messages: tuple[Message, ...]) -> RunEnded | RunWaiting:
    """Return the last event of an ended or waiting run; that of an ended one with its answer if `messages` has it."""
    if run.status is RunStatus.WAITING:
        step = next(message for message in reversed(messages) if message.tool_calls)
        return RunWaiting(run, step.id)
    return RunEnded(run, next((message for message in messages if message.id == run.message_id), None))


def _steps(messages: tuple[Message, ...]) -> Iterator[Event]:
    for message in messages:
        if message.role is Role.TOOL:
            yield ToolAnswered(message)
            continue
        yield MessageCompleted(message)
        for call in message.tool_calls:
            yield ToolCalled(call, message.id)
