"""Turns of requests that bring their conversation: earlier messages, and steps that were taken elsewhere."""

from dataclasses import replace

import pytest

from fakes.raw_sql import run_sql
from fakes.scripted_model import Call, Say
from fakes.stage import AGENT, CLAIMER, Stage, open_stage
from fakes.waiting_turns import ASKS_WEATHER, WEATHER
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionQuery
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import IdempotencyKeyReused, SessionBusy
from throughline.domain.message import Message, NewMessage, Role, Source
from throughline.domain.run import Opening, Run, RunInput, RunStatus, Submission, Submitted
from throughline.domain.session import NewSession
from throughline.turn.take_turn import take_turn
from throughline.turn.worker.retention import ErasureConfig, SessionErasure

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
