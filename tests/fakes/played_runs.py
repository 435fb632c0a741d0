"""Random runs as events: steps with texts and calls, attempts that begin again, and an end or a wait."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

from hypothesis import strategies as st

from fakes.event_log import claimed
from throughline.domain.basic_types import JsonObject, MessageId
from throughline.domain.events import (
    AnswerReset,
    CompactionStarted,
    Event,
    MessageCompleted,
    MessageDelta,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    RunWaiting,
    ToolAnswered,
    ToolCallDelta,
    ToolCalled,
    ToolProgress,
)
from throughline.domain.message import Message, Role, Source, ToolCall
from throughline.domain.prompt import ToolSpec
from throughline.domain.run import Run, RunError, RunStatus
from throughline.domain.tool import AwaitedCall, Wait, WaitKind

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEATHER = ToolSpec("weather", "Tell.", {"type": "object"})
WORDS = st.lists(st.sampled_from(["one ", "two ", "\n", "ü", '"'])).map("".join)
Said: TypeAlias = list[object]


@dataclass(frozen=True)
class PlayedCall:
    """A call, and what becomes of it: `ok`, `error` or `reject`."""

    name: str
    outcome: str


@dataclass(frozen=True)
class PlayedStep:
    """A step of the model. `broken` are texts of attempts that were not finished."""

    thinks: str
    text: str
    calls: tuple[PlayedCall, ...]
    broken: tuple[str, ...]
    is_streamed: bool
    resets_after: bool


@dataclass(frozen=True)
class PlayedRun:
    """A run: its events, and what a client should have of it in the end."""

    run: Run
    events: tuple[Event, ...]
    said: Said

    @property
    def end(self) -> RunEnded | RunWaiting:
        """The last event."""
        last = self.events[-1]
        assert isinstance(last, RunEnded | RunWaiting)
        return last

    @property
    def messages(self) -> list[Message]:
        """The messages that are stored at the end, without an answer that says nothing."""
        stored = [event.message for event in self.events if isinstance(event, MessageCompleted | ToolAnswered)]
        return [message for message in stored if message.content or message.tool_calls]

    @property
    def is_cut(self) -> bool:
        """Whether the run ended before its answer was complete."""
        return self.end.run.status in {RunStatus.FAILED, RunStatus.CANCELLED}

    def with_unfinished_step(self) -> "PlayedRun":
        """Return the run with pieces of a step that is never complete, if it was cut."""
        step = MessageId(UUID(int=9))
        pieces = ReasoningDelta(step, "Hm."), MessageDelta(step, "We"), ToolCallDelta(step, 0, "cut", "weather", '{"a')
        return replace(self, events=(*self.events[:-1], *pieces, self.end)) if self.is_cut else self


STEPS = st.builds(
    PlayedStep,
    thinks=WORDS,
    text=WORDS,
    calls=st.lists(
        st.builds(
            PlayedCall,
            name=st.sampled_from(["calculator", "weather", "ask_user"]),
            outcome=st.sampled_from(["ok", "error", "reject"]),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    broken=st.lists(WORDS, max_size=2).map(tuple),
    is_streamed=st.booleans(),
    resets_after=st.booleans(),
)


@st.composite
def runs(draw: st.DrawFn) -> PlayedRun:
    steps = draw(st.lists(STEPS, max_size=3))
    end = draw(st.sampled_from(["succeeded", "failed", "cancelled", "waiting"]))
    return play(steps, end, draw(WORDS), draw(st.lists(WORDS, max_size=2)))


def play(steps: list[PlayedStep], end: str, answer: str, broken: list[str]) -> PlayedRun:
    """Return the run with these steps. The calls of the last one wait if the run does."""
    run = replace(claimed().run, input=replace(claimed().run.input, client_tools=(WEATHER,)))
    told: list[Event] = [RunStarted(run), CompactionStarted("threshold", 9)]
    said: Said = []
    waits = bool(steps) and end == "waiting"
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        events, shown = _play_step(run, number, step, is_open=waits and is_last)
        told += events
        said += shown
    if waits:
        waiting = _waiting(run, told)
        return PlayedRun(waiting.run, (*told, waiting), _asked(said, waiting))
    status = RunStatus.SUCCEEDED if end == "waiting" else RunStatus(end)
    if status is RunStatus.SUCCEEDED:
        last = PlayedStep("", answer, (), tuple(broken), is_streamed=False, resets_after=False)
        events, shown = _play_step(run, len(steps), last, is_open=False)
        told += events
        said += shown
    error = RunError("internal_error", "It failed.") if status is RunStatus.FAILED else None
    message = told[-1].message if isinstance(told[-1], MessageCompleted) else None
    return PlayedRun(run, (*told, RunEnded(replace(run, status=status, error=error), message)), said)


def _play_step(run: Run, number: int, step: PlayedStep, *, is_open: bool) -> tuple[list[Event], Said]:
    told: list[Event] = []
    for attempt, text in enumerate(step.broken):
        message_id = MessageId(UUID(int=1_000 * (number + 1) + attempt))
        told += [ReasoningDelta(message_id, "Hm."), MessageDelta(message_id, text)]
        told += [ToolCallDelta(message_id, 0, f"broken_{attempt}", "weather", "{"), AnswerReset(attempt + 2)]
    message_id = MessageId(UUID(int=1_000 * (number + 1) + 100))
    calls = tuple(ToolCall(f"call_{number}_{place}", call.name, "{}") for place, call in enumerate(step.calls))
    told += [ReasoningDelta(message_id, step.thinks)] if step.thinks else []
    told += [MessageDelta(message_id, piece) for piece in step.text]
    streamed = calls if step.is_streamed else ()
    told += [ToolCallDelta(message_id, place, call.id, call.name, "{}") for place, call in enumerate(streamed)]
    told.append(MessageCompleted(_message(run, message_id, Role.ASSISTANT, step.text, tool_calls=calls)))
    told += [ToolCalled(call, message_id) for call in calls]
    told += [AnswerReset(9), RunStarted(run)] if step.resets_after and calls else []
    said: Said = [step.text] if step.text else []
    for call, played in zip(calls, step.calls, strict=True):
        if is_open:
            said.append((call.name, "input-available", None))
            continue
        told += [ToolProgress(call.id, 1, None, ""), ToolAnswered(_result(run, call, played))]
        said.append((call.name, *_shown(played)))
    return told, said


def _shown(played: PlayedCall) -> tuple[str, object]:
    return {
        "ok": ("output-available", '{"a": 1}' if played.name == "ask_user" else {"a": 1}),
        "error": ("output-error", '{"a": 1}'),
        "reject": ("output-denied", None),
    }[played.outcome]


def _result(run: Run, call: ToolCall, played: PlayedCall) -> Message:
    metadata: dict[str, JsonObject] = {
        "ok": {},
        "error": {"is_error": True},
        "reject": {"decision": "reject", "is_error": True},
    }
    message_id = MessageId(UUID(int=int.from_bytes(call.id.encode()[:16])))
    made = _message(run, message_id, Role.TOOL, '{"a": 1}')
    return replace(made, tool_call_id=call.id, name=call.name, metadata=metadata[played.outcome])


def _message(
    run: Run, message_id: MessageId, role: Role, text: str, *, tool_calls: tuple[ToolCall, ...] = ()
) -> Message:
    return Message(message_id, run.session_id, 1, role, text, Source.API, NOW, tool_calls=tool_calls, run_id=run.id)


def _waiting(run: Run, told: list[Event]) -> RunWaiting:
    step = next(event.message for event in reversed(told) if isinstance(event, MessageCompleted))
    kinds = {"calculator": WaitKind.APPROVAL, "weather": WaitKind.TOOL_RESULT, "ask_user": WaitKind.ANSWER}
    calls = tuple(AwaitedCall(call, kinds[call.name]) for call in step.tool_calls)
    question = AwaitedCall(ToolCall(f"{calls[0].id}:1", "ask_user", '{"question": "Size?"}'), WaitKind.ANSWER)
    wait = Wait((*calls, question), NOW, 1)
    return RunWaiting(replace(run, status=RunStatus.WAITING, wait=wait, wait_count=1), step.id)


def _asked(said: Said, waiting: RunWaiting) -> Said:
    """Return what the client has once the run waits: calls that need approval say so, and the server's question."""
    count = len(waiting.run.wait.calls) - 1 if waiting.run.wait is not None else 0
    states: Iterator[object] = (
        (name, "approval-requested", None) if name == "calculator" else (name, state, output)
        for name, state, output in (one for one in said[-count:] if isinstance(one, tuple))
    )
    return [*said[:-count], *states, ("ask_user", "input-available", None)]
