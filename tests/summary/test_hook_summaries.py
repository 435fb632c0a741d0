"""A `pre_compact` hook that always writes the summary itself: the memory grows, and nothing readable is lost to it."""

from dataclasses import replace
from itertools import count

import pytest

from fakes.compactions import asked, compact_now, fill
from fakes.own_hooks import OwnHooks
from fakes.scripted_model import Fail, Say, Step
from fakes.stage import Stage, open_stage, with_context
from throughline.context.policy import SummaryKind, SummaryPolicy, SummaryShape
from throughline.db.database import Database
from throughline.domain.errors import ModelUnavailable
from throughline.domain.prompt import ModelRequest
from throughline.ports.hooks import Decision, Hook, PreCompact

SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]
COMPACTIONS = 17
MERGED = "What was said before, in short [#1-#4]."


async def open_with(database: Database, hook: Hook, shape: SummaryShape) -> Stage:
    policy = SummaryPolicy(shape=shape, max_tokens=600, kind=SummaryKind.LLM)
    agent = with_context(window=8192, min_recent_messages=2, summary=policy, pre_compact="hooks:own")
    stage = await open_stage(database, agent=agent)
    stage.dependencies = replace(stage.dependencies, hooks=OwnHooks({"hooks:own": hook}))
    return stage


def writes(words: int) -> Hook:
    numbers = count(1)

    def hook(_event: PreCompact) -> Decision:
        return Decision(summary=f"Part {next(numbers)} of the story. " + "A fact of it. " * words)

    return hook


async def compact_often(stage: Stage) -> str:
    for _ in range(COMPACTIONS):
        await fill(stage, 2, words=300)
        assert (await compact_now(stage)).outcome == "adopted"
    session = await stage.reload()
    assert session.summary_through_position > 4 * (COMPACTIONS - 1)
    assert session.summary_tokens <= 600
    return session.conversation_summary


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("words", [5, 40])
async def test_its_texts_are_merged_once_they_do_not_fit_together(
    database: Database, shape: SummaryShape, words: int
) -> None:
    stage = await open_with(database, writes(words), shape)
    stage.model.by_request = lambda _: Say(MERGED)

    text = await compact_often(stage)

    version = await stage.database.summaries.latest(stage.session.id)
    assert version is not None
    assert MERGED in text
    assert len(version.segment_ids) < COMPACTIONS
    assert f"Part {COMPACTIONS} of the story." in text
    assert "[…]" not in text
    assert "left out here" not in text


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_a_merge_is_given_holds_its_older_texts(database: Database, shape: SummaryShape) -> None:
    stage = await open_with(database, writes(120), shape)
    requests: list[ModelRequest] = []

    def remember(request: ModelRequest) -> Step:
        requests.append(request)
        return Say(MERGED)

    stage.model.by_request = remember
    for _ in range(2):
        await fill(stage, 2, words=300)
        await compact_now(stage)

    (merge,) = requests
    assert "Part 1 of the story." in asked(merge)
    assert "Part 2 of the story." in asked(merge)


@pytest.mark.parametrize("shape", SHAPES)
async def test_where_no_model_can_merge_them_the_newest_stay_readable(database: Database, shape: SummaryShape) -> None:
    stage = await open_with(database, writes(120), shape)
    stage.model.by_request = lambda _: Fail(ModelUnavailable("away"))

    text = await compact_often(stage)

    assert "[The oldest parts of the summary are left out here.]" in text
    assert f"Part {COMPACTIONS} of the story." in text
    assert f"Part {COMPACTIONS - 1} of the story." in text
