"""Random events of one part of a run, as a worker emits them: with broken tries, tools and every kind of end."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

from hypothesis import strategies as st

from fakes.event_log import claimed
from throughline.domain.basic_types import MessageId
from throughline.domain.events import (
    AnswerReset,
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
from throughline.domain.prompt import Usage
from throughline.domain.run import Run, RunError, RunStatus
from throughline.domain.tool import AwaitedCall, Wait, WaitKind

RUN = claimed().run
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = st.text(min_size=1, max_size=12)
CLIENT_TOOL, APPROVED_TOOL = "weather", "delete"
TOOLS = ("lookup", CLIENT_TOOL, APPROVED_TOOL, "ask_user")


@dataclass
class RandomRun:
    """The events of a part, and the messages that are stored at its end."""

    events: list[Event] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    ids: int = 100

    def new_id(self) -> MessageId:
        self.ids += 1
        return MessageId(UUID(int=self.ids))

    def keep(self, role: Role, text: str, **more: object) -> Message:
        """Store a message under a new id, or the given one."""
        made = Message(
            id=self.new_id(),
            session_id=RUN.session_id,
            position=len(self.messages) + 2,
            role=role,
            content=text,
            source=Source.API,
            created_at=NOW,
            run_id=RUN.id,
        )
        made = replace(made, **more)  # type: ignore[arg-type]  # fields of Message
        self.messages.append(made)
        return made

    @property
    def end(self) -> RunEnded | RunWaiting:
        """The last event."""
        last = self.events[-1]
        assert isinstance(last, RunEnded | RunWaiting)
        return last


def _pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=3)) | {0, len(text)})
    return [text[start:end] for start, end in pairwise(cuts)] or [""]


def _show(draw: st.DrawFn, run: RandomRun, message_id: MessageId, text: str, calls: tuple[ToolCall, ...]) -> None:
    """Emit reasoning, text and calls in pieces, as a model writes them; each of them may be left out."""
    if draw(st.booleans()):
        run.events += [ReasoningDelta(message_id, piece) for piece in _pieces(draw, draw(TEXTS))]
    if text and draw(st.booleans()):
        run.events += [MessageDelta(message_id, piece) for piece in _pieces(draw, text)]
    if draw(st.booleans()):
        for index, call in enumerate(calls):
            run.events += [
                ToolCallDelta(message_id, index, call.id, call.name, piece) for piece in _pieces(draw, call.arguments)
            ]


def _step(draw: st.DrawFn, run: RandomRun, text: str, calls: tuple[ToolCall, ...]) -> Message:
    """Emit a step after some tries that broke off."""
    for _ in range(draw(st.integers(0, 2)) if draw(st.booleans()) else 0):
        _show(draw, run, run.new_id(), draw(TEXTS), ())
        run.events.append(AnswerReset(1))
    message = run.keep(Role.ASSISTANT, text, tool_calls=calls)
    _show(draw, run, message.id, text, calls)
    run.events.append(MessageCompleted(message))
    run.events += [ToolCalled(call, message.id) for call in calls]
    return message


def _answers(draw: st.DrawFn, run: RandomRun, calls: tuple[ToolCall, ...]) -> None:
    for call in draw(st.permutations(calls)):
        if draw(st.booleans()):
            run.events.append(ToolProgress(call.id, 1.0, None, "half"))
        metadata = {"is_error": True} if draw(st.booleans()) else {}
        message = run.keep(Role.TOOL, draw(TEXTS), tool_call_id=call.id, name=call.name, metadata=metadata)
        run.events.append(ToolAnswered(message))


KINDS = {CLIENT_TOOL: WaitKind.TOOL_RESULT, APPROVED_TOOL: WaitKind.APPROVAL, "ask_user": WaitKind.ANSWER}


def _ended(status: RunStatus, **more: object) -> Run:
    return replace(RUN, status=status, usage=Usage(20, 5), **more)  # type: ignore[arg-type]  # fields of Run


@st.composite
def random_runs(draw: st.DrawFn) -> RandomRun:
    """Return a part of a run that begins a turn."""
    run = RandomRun(events=[RunStarted(RUN)])
    for number in range(draw(st.integers(0, 3))):
        calls = tuple(
            ToolCall(f"c{number}-{index}", "lookup", '{"a": "b"}') for index in range(draw(st.integers(1, 3)))
        )
        _step(draw, run, draw(st.one_of(st.just(""), TEXTS)), calls)
        _answers(draw, run, calls)
    match draw(st.sampled_from(["answered", "waiting", "failed", "cancelled"])):
        case "answered":
            answer = _step(draw, run, draw(TEXTS), ())
            run.events.append(RunEnded(_ended(RunStatus.SUCCEEDED, context={"usage_percent": 1.0}), answer))
        case "waiting":
            names = draw(st.lists(st.sampled_from(TOOLS[1:]), min_size=1, max_size=3))
            calls = tuple(ToolCall(f"w-{index}", name, '{"question": "Why?"}') for index, name in enumerate(names))
            step = _step(draw, run, draw(st.one_of(st.just(""), TEXTS)), calls)
            wait = Wait(tuple(AwaitedCall(call, KINDS[call.name]) for call in calls), NOW, 1)
            run.events.append(RunWaiting(_ended(RunStatus.WAITING, wait=wait, wait_count=1), step.id))
        case "failed":
            _show(draw, run, run.new_id(), draw(TEXTS), (ToolCall("x", "lookup", '{"a": 1}'),))
            run.events.append(RunEnded(_ended(RunStatus.FAILED, error=RunError("model_rejected", "No."))))
        case _:
            _show(draw, run, run.new_id(), draw(TEXTS), (ToolCall("x", "lookup", '{"a": 1}'),))
            run.events.append(RunEnded(_ended(RunStatus.CANCELLED)))
    return run
