"""Ids of messages are known before the messages are stored: to readers of a run, in each attempt, however it ends."""

import pytest

from fakes.conversations import user_message
from fakes.raw_sql import end_leases
from fakes.scripted_model import Fail, Say
from fakes.stage import Stage, open_stage
from throughline.db.database import Database
from throughline.domain.errors import ModelInvalidRequest
from throughline.domain.events import RunEnded, RunStarted
from throughline.domain.ids import MessageId
from throughline.domain.message import Role
from throughline.domain.run import Claimer, Run, RunStatus
from throughline.turn.take_turn import take_turn
from throughline.wire.events import event_json


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database)


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
        await stage.database.runs.claim_next(Claimer(worker="dying", lease_seconds=0))

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
