"""The first turn in a branch: its prompt has the summary of the copied messages, or all of them, at no cost."""

import pytest

from fakes.compactions import SUMMARY, compact_now, fill, open_summarising
from fakes.scripted_model import Say
from fakes.stage import Stage
from throughline.db.database import Database
from throughline.db.sessions.branch import NewBranch
from throughline.domain.message import Source
from throughline.domain.prompt import ModelRequest
from throughline.domain.summary import CompactionOutcome


async def branch(stage: Stage, at: int) -> None:
    """Branch the stage's session; its session is the branch from then on."""
    new = NewBranch(stage.owner_id, stage.session.id, at, Source.API)
    stage.session, _ = await stage.database.sessions.branch(new)
    stage.model.requests.clear()


async def summarised(database: Database) -> Stage:
    """Open a session with twelve messages, of which a summary covers ten."""
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Say(SUMMARY)
    await fill(stage, 6)
    assert (await compact_now(stage)).outcome is CompactionOutcome.ADOPTED
    assert (await stage.reload()).summary_through_position == 10
    return stage


async def asked_first(stage: Stage) -> ModelRequest:
    """Return the only model call of the session's first turn."""
    await stage.turn("And now?")
    (request,) = stage.model.requests
    return request


@pytest.mark.parametrize("at", [10, 11, 12])
async def test_the_first_prompt_shows_the_summary_and_what_follows_it(database: Database, at: int) -> None:
    stage = await summarised(database)
    await branch(stage, at)

    asked = await asked_first(stage)

    assert SUMMARY in asked.prompt.system
    assert [one.position for one in asked.prompt.messages] == list(range(11, at + 2))


async def test_the_first_prompt_shows_all_messages_if_no_summary_covers_them_alone(database: Database) -> None:
    stage = await summarised(database)
    await branch(stage, 9)

    asked = await asked_first(stage)

    assert "[Context Summary" not in asked.prompt.system
    assert [one.position for one in asked.prompt.messages] == list(range(1, 11))


async def test_a_segment_behind_the_summary_is_not_paid_for_again(database: Database) -> None:
    stage = await summarised(database)
    await fill(stage, 3)
    assert (await compact_now(stage)).outcome is CompactionOutcome.ADOPTED
    reached = (await stage.reload()).summary_through_position
    first = await database.summaries.get(stage.owner_id, stage.session.id, 1)
    await database.summaries.restore(stage.owner_id, stage.session.id, first.id)
    await branch(stage, 18)

    result = await compact_now(stage)

    assert (result.session.summary_through_position, stage.model.requests) == (reached, [])
