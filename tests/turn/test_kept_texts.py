"""A turn that ends before it has stored the user's message: the words stand in the history, and the run says why."""

from dataclasses import replace

import pytest

from fakes.scripted_model import Say
from fakes.stage import Stage, open_stage
from throughline.agents.registry import AgentRegistry
from throughline.db.database import Database
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import Role
from throughline.domain.run import Claimer, RunStatus
from throughline.ports.models import ChatModel
from throughline.turn.take_turn import take_turn

WORDS = "keep what I say"


class NoModels:
    """Models of which none can be used any more."""

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        del api_key_env
        raise SettingInvalid(f"{model!r} at {base_url!r} cannot be used.")


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database)


async def assert_kept(stage: Stage, error: str) -> None:
    run_id = (await stage.messages())[0].run_id
    assert run_id is not None
    run = await stage.database.runs.get_run(stage.owner_id, run_id)
    assert [(message.role, message.content) for message in await stage.messages()] == [(Role.USER, WORDS)]
    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.type == error


async def test_the_words_are_kept_where_the_agent_is_gone(stage: Stage) -> None:
    stage.dependencies = replace(stage.dependencies, agents=AgentRegistry([]))

    await stage.turn(WORDS)

    await assert_kept(stage, "not_found")


async def test_the_words_are_kept_where_the_model_is_gone(stage: Stage) -> None:
    stage.dependencies = replace(stage.dependencies, models=NoModels())

    await stage.turn(WORDS)

    await assert_kept(stage, "setting_invalid")


async def test_the_words_are_kept_where_every_worker_died(stage: Stage) -> None:
    await stage.submit(WORDS)
    for _ in range(stage.dependencies.config.max_attempts):
        await stage.database.runs.claim_next(Claimer(worker="dying", lease_seconds=0))

    await take_turn(stage.turn_start(await stage.claim()))

    await assert_kept(stage, "run_abandoned")


async def test_a_session_whose_agent_came_back_goes_on_with_what_was_kept(stage: Stage) -> None:
    whole = stage.dependencies
    stage.dependencies = replace(stage.dependencies, agents=AgentRegistry([]))
    await stage.turn(WORDS)
    stage.dependencies = whole
    stage.model.script(Say("I have read it."))

    await stage.turn("Did you?")

    shown = [str(message.content) for message in stage.model.requests[-1].prompt.messages]
    assert [WORDS in text for text in shown].count(True) == 1
