"""Following one part of a run: its events, up to the one with which the run ends or waits."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from fastapi import Request

from throughline.domain.basic_types import JsonObject, JsonValue
from throughline.domain.elicitation import MAX_QUESTIONS, QUESTION_COUNT_KEY
from throughline.domain.events import (
    REPLAYED_END_SEQ,
    AnswerReset,
    Event,
    RunEnded,
    RunEvent,
    RunWaiting,
    ToolCalled,
)
from throughline.domain.message import Message, Role
from throughline.domain.prompt import Usage
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import OUTSIDE, WaitKind
from throughline.http.call import Call
from throughline.http.follow import follow_run, stopping
from throughline.http.route_errors import StreamAborted
from throughline.turn.follow_run import Idle

# The parts of a run: what lies before, between and after its waits. A protocol shows each as a response or run of its
# own. A part ends with a step whose calls wait for something from outside. What they get is the input of the next.


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
    parts_of_step = steps = 0
    for message in messages:
        if message.role is Role.USER:
            continue
        if message.role is Role.ASSISTANT:
            parts_of_step = 0
            steps += 1
        if steps <= run.input.steps_brought:
            drafts[0].input.append(message)
            continue
        kind = message.metadata.get(OUTSIDE)
        while parts_of_step < waits_of(message):
            drafts.append(_Draft())
            parts_of_step += 1
        is_made = kind is None or kind == WaitKind.APPROVAL
        (drafts[-1].made if is_made else drafts[-1].input).append(message)
    begun = run.input.echo.get("parts")
    parts = run.wait_count if run.status is RunStatus.WAITING else run.wait_count + 1
    if run.status.is_final:
        parts = min(parts, len(begun) if isinstance(begun, list) else 0)
    while len(drafts) < parts:
        drafts.append(_Draft())
    return tuple(
        RunPart(number, tuple(draft.input), tuple(draft.made), is_last=number == len(drafts) - 1)
        for number, draft in enumerate(drafts)
    )


def waits_of(message: Message) -> int:
    """Return how often the call of the result has waited: for its own sake, and for answers to its server's questions.

    The calls of a step wait together.
    """
    asked = message.metadata.get(QUESTION_COUNT_KEY)
    return (OUTSIDE in message.metadata) + (min(asked, MAX_QUESTIONS) if isinstance(asked, int) else 0)


def echo_of(run: Run, part: int) -> JsonObject:
    """Return what the request of a run's part said that the service only shows again; empty if it is unknown."""
    parts = run.input.echo.get("parts")
    found = parts[part] if isinstance(parts, list) and part < len(parts) else {}
    return found if isinstance(found, dict) else {}


def new_echo(run: Run | None, given: JsonObject, created_at: int) -> JsonObject:
    """Return the echo of a run to which a request of its next part says `given`; `run` is None for the first part.

    It also keeps when the request came (Unix time), and what the run has used until then, because a run's usage is that
    of all its parts.
    """
    parts: list[JsonValue] = []
    if run is not None:
        earlier = run.input.echo.get("parts")
        parts = list(earlier) if isinstance(earlier, list) else [{}]
    part: dict[str, JsonValue] = {**given, "created_at": created_at}
    if run is not None:
        part["used"] = [run.usage.input_tokens or 0, run.usage.output_tokens or 0]
    return {"parts": [*parts, part]}


def newest_part(run: Run) -> int:
    """Return the number of the run's newest part, whether it goes on, waits or is over."""
    return run.wait_count if run.waiting_for is None else run.wait_count - 1


def messages_of(part: RunPart, messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages of the part among `messages`, those of its run; possibly none.

    The user's message belongs to the first part.
    """
    asked = (message for message in messages if message.role is Role.USER and part.number == 0)
    return (*asked, *part.input, *part.made)


def part_usage(run: Run, part: RunPart) -> Usage | None:
    """Return what this part used; None for an earlier part that a process of another version began."""
    number = part.number
    start = _used(run, number) if number else (0, 0)
    end = (run.usage.input_tokens or 0, run.usage.output_tokens or 0)
    if not part.is_last:
        found = _used(run, number + 1)
        if found is None:
            return None
        end = found
    if start is None or (part.is_last and run.usage.input_tokens is None):
        start = end = (0, 0)
    read, written = end[0] - start[0], end[1] - start[1]
    cached = min(run.usage.cached_tokens or 0, read) if part.is_last else 0
    reasoning = min(run.usage.reasoning_tokens or 0, written) if part.is_last else 0
    return Usage(read, written, cached_tokens=cached, reasoning_tokens=reasoning)


def _used(run: Run, part: int) -> tuple[int, int] | None:
    """Return the tokens read and written before a part began; None if that is not known."""
    match echo_of(run, part).get("used"):
        case [int(read), int(written)]:
            return read, written
        case _:
            return None


@dataclass(slots=True)
class SeenEvents:
    """What the events of a part have shown so far. `has_steps`: the part may have messages besides its answer.

    `has_begun`: an event was seen.
    """

    has_begun: bool = False
    has_steps: bool = False

    def add(self, event: Event) -> None:
        """Take the part's next event."""
        self.has_begun = True
        self.has_steps = self.has_steps or isinstance(event, ToolCalled | AnswerReset)


@dataclass(frozen=True, slots=True)
class FollowedPart:
    """A part of a run to follow.

    Its events come after number `after`, and after `skipped_waits` further waits of the run. `is_fresh`: this process
    has just started the run, so that none of its events can be stored yet. `seen` is updated while it is followed.
    """

    run: Run
    after: int = 0
    skipped_waits: int = 0
    is_fresh: bool = False
    seen: SeenEvents = field(default_factory=SeenEvents)

    def answer_alone(self, ended: RunEnded | RunWaiting) -> Message | None:
        """Return the part's answer, if it is the run's only message besides its question.

        Return None otherwise, and if that is not known: then the run's messages have to be read.
        """
        if isinstance(ended, RunWaiting) or self.after or ended.run.wait_count or ended.run.input.steps_brought:
            return None
        return ended.answer if self.seen.has_begun and not self.seen.has_steps else None


async def follow_part(call: Call, part: FollowedPart) -> AsyncGenerator[Event | None]:
    """Yield the part's events, and None while nothing happens. The last one is RunEnded or RunWaiting.

    Raises what `follow_run` raises.
    """
    async with aclosing(follow_batches(call, part)) as batches:
        async for events in batches:
            for event in events or (None,):
                yield event


async def follow_batches(call: Call, part: FollowedPart) -> AsyncGenerator[tuple[Event, ...]]:
    """Yield the part's events as `follow_part` does, but all that are known at a time together; none if none came."""
    async with aclosing(follow_numbered(call, part)) as batches:
        async for batch in batches:
            yield tuple(one.event for one in batch)


async def follow_numbered(call: Call, part: FollowedPart) -> AsyncGenerator[tuple[RunEvent, ...]]:
    """Yield the part's events as `follow_batches` does, with their numbers in the run.

    If the run still waits for other calls than those that it was given, the part has its wait alone. So it is with the
    part of a waiting run whose events were deleted, if it is not the first.
    """
    if part.run.status is RunStatus.WAITING and await _is_past_all_events(call, part):
        yield (await _ending(call, part.run),)
        return
    waits_left = part.skipped_waits
    async with aclosing(follow_run(call, part.run, after=part.after, is_fresh=part.is_fresh)) as followed:
        async for item in followed:
            later = [] if isinstance(item, Idle) else [*item]
            while waits_left and later and not later[0].is_last:
                waits_left -= later.pop(0).is_pause
            events = _up_to_end(later)
            for one in events:
                part.seen.add(one.event)
            if events or isinstance(item, Idle):
                yield events
            if events and (events[-1].is_last or events[-1].is_pause):
                return
    yield (await _ending(call, await call.services.database.followed_runs.reload(part.run)),)


async def _is_past_all_events(call: Call, part: FollowedPart) -> bool:
    """Return whether a waiting run has no event of the part: it comes after the last one, or after the last wait."""
    if part.after:
        return not await call.services.database.followed_runs.read_events(part.run.id, part.after, 1)
    return part.skipped_waits >= part.run.wait_count


async def _ending(call: Call, run: Run) -> RunEvent:
    """Return the last event of a run that has ended or waits, with the number that it has without stored events."""
    return RunEvent(run.id, REPLAYED_END_SEQ, await call.services.database.followed_runs.ending(run))


async def wait_for_end(request: Request, call: Call, part: FollowedPart) -> RunEnded | RunWaiting:
    """Return the event with which the part ends. Raises ServiceStopping, also if the client has disconnected."""
    with suppress(StreamAborted):
        async with aclosing(follow_numbered(call, part)) as batches:
            ended = await _last(request, batches)
            if ended is not None:
                return ended
    raise stopping(part.run)


async def _last(request: Request, batches: AsyncGenerator[tuple[RunEvent, ...]]) -> RunEnded | RunWaiting | None:
    async for batch in batches:
        if batch and isinstance(batch[-1].event, RunEnded | RunWaiting):
            return batch[-1].event
        if not batch and await request.is_disconnected():
            return None
    return None


def _up_to_end(events: Sequence[RunEvent]) -> tuple[RunEvent, ...]:
    """Return the events up to the first one with which a part ends, all without one."""
    ends = (number for number, one in enumerate(events, start=1) if one.is_last or one.is_pause)
    return tuple(events[: next(ends, None)])
