"""A turn waits for a summary only where its prompt would else be cut; all others are left to the background."""

import pytest

from context.prompt_judge import faults
from fakes.compactions import fill, prepare_one
from fakes.scripted_model import Call, Fail, Say, ScriptedModel, Step
from fakes.stage import Stage, open_stage, with_context
from throughline.context.policy import Adopt
from throughline.db.database import Database
from throughline.db.summaries.repository import SummaryRepository
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import ContextOverflow
from throughline.domain.events import CompactionFinished
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ModelRequest
from throughline.domain.run import Run, RunStatus

WINDOW = 8192


def is_summariser(request: ModelRequest) -> bool:
    return "You write the memory of a conversation" in request.prompt.system


def answers(request: ModelRequest) -> Step:
    return Say("## Intent\nThe user counts [#1-#2].") if is_summariser(request) else Say("noted")


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[SessionId]:
    """The sessions whose next summary turns asked for before they ended."""
    asked: list[SessionId] = []

    async def note(_self: SummaryRepository, session_id: SessionId) -> None:
        asked.append(session_id)

    monkeypatch.setattr(SummaryRepository, "ask_for_next", note)
    return asked


async def open_filled(database: Database, *, turns: int, **policy: object) -> Stage:
    agent = with_context(window=WINDOW, min_recent_messages=2, **policy)
    stage = await open_stage(database, agent=agent, model=ScriptedModel())
    stage.model.by_request = answers
    await fill(stage, turns, words=60)
    return stage


async def said(stage: Stage, run: Run) -> list[str]:
    """Return what was done to make room, and what was asked of whom in all."""
    done = [event.event.outcome for event in await stage.events(run) if isinstance(event.event, CompactionFinished)]
    return [*done, *("summariser" if is_summariser(request) else "model" for request in stage.model.requests)]


async def test_over_the_threshold_a_turn_asks_for_a_summary_once_and_goes_on_without_it(
    database: Database, asked_for: list[SessionId]
) -> None:
    stage = await open_filled(database, turns=26)

    run = await stage.turn("and now?")
    before = await stage.reload()
    assert await prepare_one(stage)
    stage.model.requests.clear()
    next_run = await stage.turn("and then?")

    assert (run.status, before.summary_version) == (RunStatus.SUCCEEDED, 0)
    assert await said(stage, next_run) == ["adopted", "model"]
    assert asked_for == [stage.session.id]
    assert (await stage.reload()).summary_through_position > 2


@pytest.mark.parametrize(("turns", "asks"), [(22, 1), (10, 0)], ids=["near the threshold", "far from it"])
async def test_a_turn_of_several_calls_asks_for_a_summary_before_its_end(
    database: Database, asked_for: list[SessionId], turns: int, asks: int
) -> None:
    stage = await open_filled(database, turns=turns)
    calls = [Call((ToolCall("c1", "look", "{}"),)), Call((ToolCall("c2", "look", "{}"),))]
    stage.model.by_request = lambda request: calls.pop() if calls else answers(request)

    run = await stage.turn("and now?")

    assert await said(stage, run) == ["model", "model", "model"]
    assert asked_for == [stage.session.id] * asks


async def test_a_turn_of_one_call_leaves_to_its_end_what_is_only_near(
    database: Database, asked_for: list[SessionId]
) -> None:
    stage = await open_filled(database, turns=22)

    run = await stage.turn("and now?")

    assert await said(stage, run) == ["model"]
    assert asked_for == []


async def test_what_is_over_the_threshold_and_fits_is_sent_whole(database: Database) -> None:
    stage = await open_filled(database, turns=26)

    run = await stage.turn("and now?")

    prompt = stage.model.requests[-1].prompt
    assert await said(stage, run) == ["model"]
    assert [message.position for message in prompt.messages] == list(range(1, 54))
    assert faults(prompt) == []


async def test_a_prompt_that_would_be_cut_waits_for_its_summary(database: Database, asked_for: list[SessionId]) -> None:
    stage = await open_filled(database, turns=30)

    run = await stage.turn("and now?")

    assert await said(stage, run) == ["adopted", "summariser", "model"]
    assert asked_for == []
    assert (await stage.reload()).summary_through_position > 2


async def test_so_many_messages_that_they_are_not_even_loaded_keep_nobody_waiting(
    database: Database, asked_for: list[SessionId]
) -> None:
    stage = await open_filled(database, turns=300)

    run = await stage.turn("and now?")

    prompt = stage.model.requests[-1].prompt
    assert run.status is RunStatus.SUCCEEDED
    assert await said(stage, run) == ["fitted", "model"]
    assert asked_for == [stage.session.id]
    assert "not shown here" in str(prompt.messages[0].content)
    assert faults(prompt) == []


async def test_nobody_waits_for_them_either_where_the_provider_refuses_the_prompt(
    database: Database, asked_for: list[SessionId]
) -> None:
    stage = await open_filled(database, turns=300)
    refusals = [Fail(ContextOverflow("too long"))]
    stage.model.by_request = lambda request: refusals.pop() if refusals else answers(request)

    run = await stage.turn("and now?")

    first, second = stage.model.requests
    assert run.status is RunStatus.SUCCEEDED
    assert "summariser" not in await said(stage, run)
    assert len(str(second.prompt)) < len(str(first.prompt))
    assert asked_for == [stage.session.id]
    assert faults(second.prompt) == []


@pytest.mark.parametrize("adopt", list(Adopt))
async def test_many_messages_alone_keep_nobody_waiting(database: Database, adopt: Adopt) -> None:
    stage = await open_filled(database, turns=10, adopt=adopt, max_messages_before_summary=4)

    run = await stage.turn("and now?")

    assert await said(stage, run) == ["model"]
