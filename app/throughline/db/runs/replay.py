"""The events of an ended run, made from its stored messages for readers who come after its events are deleted."""

from collections.abc import Iterator

from throughline.domain.events import (
    STAND_IN_END,
    AnswerReset,
    Event,
    MessageCompleted,
    RunEnded,
    RunEvent,
    ToolAnswered,
    ToolCalled,
)
from throughline.domain.message import Message, Role
from throughline.domain.run import Run


def replay_events(run: Run, messages: tuple[Message, ...]) -> tuple[RunEvent, ...]:
    """Return `reset`, an event for each of the run's messages and their tool calls, and the last event.

    Their numbers end with STAND_IN_END and stand for no stored event: a reader that goes on behind one of them, but for
    the last, gets all of it again.
    """
    events = [AnswerReset(run.attempt), *_steps(messages), ended_event(run, messages)]
    first = STAND_IN_END - len(events) + 1
    return tuple(RunEvent(run.id, first + index, event) for index, event in enumerate(events))


def ended_event(run: Run, messages: tuple[Message, ...]) -> RunEnded:
    """Return the last event of an ended run, with its answer if `messages` hold one."""
    return RunEnded(run, next((message for message in messages if message.id == run.message_id), None))


def _steps(messages: tuple[Message, ...]) -> Iterator[Event]:
    for message in messages:
        if message.role is Role.TOOL:
            yield ToolAnswered(message)
            continue
        yield MessageCompleted(message)
        for call in message.tool_calls:
            yield ToolCalled(call)
