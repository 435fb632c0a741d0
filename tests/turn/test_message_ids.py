"""Ids of messages are known before the messages are stored: to readers of a run, in each attempt, however it ends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from fakes.conversations import claim_next, user_message
from fakes.raw_sql import end_leases, run_sql
from fakes.scripted_model import Call, Fail, Hang, Say, Step
from fakes.scripted_turns import ASKS_WEATHER, WEATHER
from fakes.shown_parts import check_ids
from fakes.stage import AGENT, CLAIMER, Stage, open_stage, with_context
from fakes.waiting import until_found
from throughline.db.database import Database
from throughline.db.sessions.messages import MessageRepository
from throughline.db.sessions.repository import SessionQuery
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.errors import (
    AnswerIncomplete,
    ContextOverflow,
    IdempotencyKeyReused,
    ModelInvalidRequest,
    ModelRateLimited,
    ModelUnavailable,
    SessionBusy,
)
from throughline.domain.events import AnswerReset, Event, MessageCompleted, MessageDelta, RunEnded, RunStarted
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.prompt import Usage
from throughline.domain.run import Claimer, Lease, Opening, Run, RunInput, RunStatus, Submission, Submitted
from throughline.domain.session import NewSession
from throughline.domain.usage_report import ModelCall
from throughline.turn.take_turn import take_turn
from throughline.turn.worker.retention import ErasureConfig, SessionErasure
from throughline.wire.events import event_json

PASSING = (AnswerIncomplete("cut"), ModelUnavailable("down"), ModelRateLimited("slow down"))


async def told_of_user_message(stage: Stage, run: Run) -> set[MessageId]:
    """Return all ids that events and the stored run name as that of the user's message."""
    events = [event.event for event in await stage.events(run)]
    assert any(isinstance(event, RunStarted) for event in events)
    started = {event.user_message_id for event in events if isinstance(event, RunStarted)}
    ended = {event.run.user_message_id for event in events if isinstance(event, RunEnded)}
    stored = await stage.database.runs.get_run(stage.owner_id, run.id)
    return {run.user_message_id, stored.user_message_id, *started, *ended}


async def user_messages(stage: Stage) -> set[MessageId]:
    return {message.id for message in await stage.messages() if message.role is Role.USER}


async def test_a_started_run_names_the_users_message_as_it_is_stored(stage: Stage) -> None:
    stage.model.script(Say("Hello"))
    run = await stage.submit("Hi")

    await take_turn(stage.turn_start(await stage.claim()))

    assert await told_of_user_message(stage, run) == await user_messages(stage)
    shown = event_json((await stage.events(run))[0].event)
    assert shown["user_message_id"] == str(run.user_message_id)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_resumed_run_names_the_same_users_message(stage: Stage, database_url: str, *, is_stored: bool) -> None:
    stage.model.script(Say("Hello"))
    run = await stage.submit("Hi")
    first = await stage.claim()
    if is_stored:
        message = user_message("Hi", id=run.user_message_id)
        await stage.database.messages.append_message(first.lease, "user", message)
    await end_leases(database_url)

    await take_turn(stage.turn_start(await stage.claim()))

    assert await told_of_user_message(stage, run) == await user_messages(stage)


async def test_a_users_message_stored_by_an_earlier_version_keeps_its_id(stage: Stage, database_url: str) -> None:
    stage.model.script(Say("Hello"))
    run = await stage.submit("Hi")
    stored = await stage.database.messages.append_message((await stage.claim()).lease, "user", user_message("Hi"))
    await end_leases(database_url)

    claimed = await stage.claim()
    await take_turn(stage.turn_start(claimed))

    assert stored.id != run.user_message_id
    assert await told_of_user_message(stage, claimed.run) == {stored.id} == await user_messages(stage)


async def test_a_run_that_fails_before_it_saves_keeps_the_message_under_its_id(stage: Stage) -> None:
    run = await stage.submit("poison")
    for _ in range(3):
        await claim_next(stage.database.runs, Claimer(worker="dying", lease_seconds=0))

    await take_turn(stage.turn_start(await stage.claim()))

    assert (await stage.database.runs.get_run(stage.owner_id, run.id)).status is RunStatus.FAILED
    assert await told_of_user_message(stage, run) == await user_messages(stage)


async def test_a_run_that_fails_in_the_model_has_the_message_under_its_id(stage: Stage) -> None:
    stage.model.script(Fail(ModelInvalidRequest("no")))

    run = await stage.turn("Hi")

    assert await told_of_user_message(stage, run) == await user_messages(stage)


async def test_a_run_cancelled_while_it_waits_keeps_the_message_under_its_id(stage: Stage) -> None:
    run = await stage.submit("Hi")

    await stage.database.runs.request_cancel(stage.owner_id, run.id)

    assert await user_messages(stage) == {run.user_message_id}


async def test_no_two_runs_name_one_message(stage: Stage) -> None:
    runs = [await stage.submit(f"message {number}") for number in range(8)]

    ids = {run.user_message_id for run in runs} | {run.id for run in runs}
    assert len(ids) == 2 * len(runs)


class HaltingMessages:
    """The messages of the database, of which the append of one step never returns, before or after it is stored."""

    def __init__(self, messages: MessageRepository, step: str, *, is_stored: bool) -> None:
        self._messages = messages
        self._step = step
        self._is_stored = is_stored
        self.halted = asyncio.Event()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # stands for every other method
        return getattr(self._messages, name)

    async def append_message(
        self, lease: Lease, step: str, message: NewMessage, calls: Sequence[ModelCall] = ()
    ) -> Message:
        is_halted = step == self._step and not self.halted.is_set()
        if is_halted and not self._is_stored:
            await self._halt()
        stored = await self._messages.append_message(lease, step, message, calls)
        if is_halted:
            await self._halt()
        return stored

    async def _halt(self) -> None:
        self.halted.set()
        await asyncio.Event().wait()


async def cancelled(stage: Stage, run: Run, once: Callable[[], Awaitable[object]]) -> Run:
    """Take the run's turn, cancel it once `once` returns something true, and return it as it ended."""
    start = stage.turn_start(await stage.claim())
    turn = asyncio.create_task(take_turn(start))
    await until_found(once)
    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    start.heartbeat.renew_now()
    await turn
    return await stage.database.runs.get_run(stage.owner_id, run.id)


async def told(stage: Stage, run: Run) -> list[Event]:
    return [event.event for event in await stage.events(run)]


@pytest.mark.parametrize("seed", range(12))
async def test_parts_have_the_id_of_their_message_however_calls_fail(stage: Stage, seed: int) -> None:
    chance = Random(seed)
    steps: list[Step] = []
    for number in range(chance.randrange(4)):
        failed = Fail(chance.choice(PASSING), shown=chance.choice(["", "half an"]), thinks=chance.choice(["", "hm"]))
        calls = tuple(
            ToolCall(chance.choice(["call_0", f"c{number}-{index}"]), "calculator", '{"expression": "1+1"}')
            for index in range(chance.randrange(1, 3))
        )
        steps.extend([replace(failed, calls=chance.choice([(), calls[:1]]))] * chance.randrange(3))
        asked = Call(calls, text=chance.choice(["", "I look."]), thinks=chance.choice(["", "So."]))
        steps.append(replace(asked, is_streamed=len({call.id for call in calls}) == len(calls)))
    ending: Step = chance.choice((Say("the end", thinks="then"), Fail(ModelInvalidRequest("no"), shown="not this")))
    stage.model.script(*steps, ending)

    run = await stage.turn("go")

    assert run.status is (RunStatus.SUCCEEDED if isinstance(ending, Say) else RunStatus.FAILED)
    check_ids(await told(stage, run))
    check_ids([event.event for event in await stage.database.followed_runs.replay(run)])


async def test_reasoning_before_a_refusal_as_too_long_is_taken_back(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(window=8192, min_recent_messages=2))
    for number in range(3):
        stage.model.script(Say("answer " * 300))
        await stage.turn(f"question {number}")
    full = ContextOverflow("no room for an answer")
    stage.model.by_request = lambda request: (
        Say("Intent: numbers. State: going on.")
        if not request.tools
        else Fail(full, thinks="I see")
        if len(stage.model.requests) == 4
        else Say("short", thinks="Now")
    )

    run = await stage.turn("and now?")

    assert run.status is RunStatus.SUCCEEDED
    assert any(isinstance(event, AnswerReset) for event in await told(stage, run))
    check_ids(await told(stage, run))


async def test_an_interrupted_answer_is_kept_under_the_id_of_its_parts(stage: Stage) -> None:
    stage.model.script(Hang(shown="The first half", thinks="Let me see"))
    run = await stage.submit("tell me")

    async def shown() -> bool:
        return any(isinstance(event, MessageDelta) for event in await told(stage, run))

    ended = await cancelled(stage, run, shown)

    kept = (await stage.messages())[-1]
    assert (ended.message_id, kept.content) == (kept.id, "The first half")
    check_ids(await told(stage, run))


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_step_whose_storage_is_interrupted_is_stored_once_under_its_id(
    stage: Stage, database_url: str, *, is_stored: bool
) -> None:
    halting = HaltingMessages(stage.database.messages, "assistant:0", is_stored=is_stored)
    stage.dependencies = replace(stage.dependencies, messages=halting)
    stage.model.script(Call((ToolCall("c1", "calculator", "{}"),), text="I look.", usage=Usage(10, 2)))
    run = await stage.submit("go")

    async def halted() -> bool:
        return halting.halted.is_set()

    ended = await cancelled(stage, run, halted)

    assert ended.status is RunStatus.CANCELLED
    assert [message.content for message in await stage.messages()] == ["go", "I look."]
    assert any(isinstance(event, MessageCompleted) for event in await told(stage, run))
    assert await run_sql(database_url, "select input_tokens from model_calls") == [(10,)]
    check_ids(await told(stage, run))


async def test_parts_shown_before_a_crash_have_another_id_than_those_after_it(stage: Stage, database_url: str) -> None:
    stage.model.script(Hang(shown="half"), Say("whole"))
    run = await stage.submit("go")
    dying = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))

    async def shown() -> bool:
        return any(isinstance(event, MessageDelta) for event in await told(stage, run))

    await until_found(shown)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    await end_leases(database_url)

    await take_turn(stage.turn_start(await stage.claim()))

    events = await told(stage, run)
    assert any(isinstance(event, AnswerReset) for event in events)
    check_ids(events)


EARLIER = (
    NewMessage(role=Role.USER, content="My name is Alice.", source=Source.API, token_count=5),
    NewMessage(role=Role.ASSISTANT, content="Hello Alice!", source=Source.API, token_count=4),
)
STEPS = (
    NewMessage(role=Role.ASSISTANT, content="", source=Source.API, tool_calls=(ASKS_WEATHER,)),
    NewMessage(role=Role.TOOL, content="rain", source=Source.API, tool_call_id="call_1", name="weather"),
)


def opening(stage: Stage, text: str = "And now?", *, key: str | None = None, **changes: object) -> Submission:
    """Return the submission of a new session with earlier messages, and with whatever changes."""
    new = NewSession(
        owner_id=stage.owner_id,
        agent="assistant",
        title="",
        source=Source.API,
        metadata={},
        id=SessionId(new_id()),
        idempotency_key=key,
        fingerprint=text,
        expires_in_seconds=changes.pop("expires_in_seconds", None),  # type: ignore[arg-type]  # a number or None
    )
    given = Opening(session=new, history=EARLIER)
    return Submission(
        stage.owner_id,
        new.id or pytest.fail("no id"),
        RunInput(text, client_tools=(WEATHER,)),
        Source.API,
        fingerprint=text,
        idempotency_key=key,
        opening=replace(given, **changes),  # type: ignore[arg-type]  # fields by name
    )


async def play(stage: Stage, submission: Submission) -> tuple[Run, tuple[Message, ...]]:
    """Submit and play the turn; return the run and the messages of its session."""
    submitted = await stage.database.runs.submit(submission, CLAIMER)
    assert submitted.claimed is not None
    await take_turn(stage.turn_start(submitted.claimed))
    run = await stage.database.runs.get_run(stage.owner_id, submitted.run.id)
    return run, await stage.database.messages.get_messages_after(run.session_id, None)


async def test_a_new_session_begins_with_the_messages_of_its_request(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("You are Alice."))

    run, messages = await play(stage, opening(stage, "What is my name?"))

    assert run.status is RunStatus.SUCCEEDED
    assert [message.position for message in messages] == [1, 2, 3, 4]
    said = ["My name is Alice.", "Hello Alice!", "What is my name?", "You are Alice."]
    assert [message.content for message in messages] == said
    assert [message.content for message in stage.model.requests[0].prompt.messages] == said[:3]
    session = await database.sessions.get(stage.owner_id, run.session_id)
    assert session.message_count == 4


async def test_a_turn_goes_on_after_steps_that_were_taken_elsewhere(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("It rains."))

    run, messages = await play(stage, opening(stage, steps=STEPS))

    assert run.status is RunStatus.SUCCEEDED
    assert [message.role.value for message in messages] == ["user", "assistant"] * 2 + ["tool", "assistant"]
    assert [message.run_id for message in messages] == [None] * 2 + [run.id] * 4
    assert [message.role.value for message in stage.model.requests[0].prompt.messages][-2:] == ["assistant", "tool"]


async def test_rounds_of_client_tools_do_not_use_up_the_rounds_of_a_turn(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, max_tool_rounds=1))
    many = [
        replace(message, tool_calls=(replace(ASKS_WEATHER, id=f"call_{number}"),))
        if message.tool_calls
        else replace(message, tool_call_id=f"call_{number}")
        for number in range(5)
        for message in STEPS
    ]
    stage.model.script(Call((replace(ASKS_WEATHER, id="call_9"),)))

    run, _ = await play(stage, opening(stage, steps=tuple(many)))

    assert run.status is RunStatus.WAITING
    assert stage.model.requests[0].may_call_tools


async def test_a_repeated_request_stores_its_conversation_once(database: Database, database_url: str) -> None:
    stage = await open_stage(database)
    first = await database.runs.submit(opening(stage, key="k"), None)

    again = await database.runs.submit(opening(stage, key="k"), None)

    assert isinstance(again, Submitted)
    assert (again.run.id, again.replayed) == (first.run.id, True)
    assert await run_sql(database_url, "select count(*) from messages") == [(2,)]
    with pytest.raises(IdempotencyKeyReused):
        await database.runs.submit(opening(stage, "something else", key="k"), None)


async def test_nothing_is_put_before_an_unfinished_turn(database: Database) -> None:
    stage = await open_stage(database)
    await stage.submit("hello")
    given = replace(opening(stage), session_id=stage.session.id, opening=Opening(history=EARLIER))

    with pytest.raises(SessionBusy):
        await database.runs.submit(given, None)

    assert await stage.messages() == ()


async def test_an_expired_session_is_in_no_list_and_is_erased_with_its_waiting_run(
    database: Database, database_url: str
) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)))
    run, _ = await play(stage, opening(stage, expires_in_seconds=900.0))
    kept = SessionErasure(database.expired_sessions, stage.clock, stage.metrics, ErasureConfig())
    (schedule,) = kept.often()

    listed = await database.sessions.list(stage.owner_id, SessionQuery())
    await schedule.run()
    before = await run_sql(database_url, "select count(*) from sessions where id = $1", run.session_id)
    await run_sql(
        database_url, "update sessions set expires_at = now() - interval '1 second' where id = $1", run.session_id
    )
    await schedule.run()

    assert [session.id for session in listed.items] == [stage.session.id]
    assert before == [(1,)]
    assert await run_sql(database_url, "select count(*) from sessions where id = $1", run.session_id) == [(0,)]
    assert await run_sql(database_url, "select count(*) from sessions") == [(1,)]
