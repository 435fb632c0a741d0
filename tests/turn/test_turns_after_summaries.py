"""Turns after a summary was adopted: their prompts grow at the end, are smaller, and obey no wish for the summary."""

import itertools
import json
from collections.abc import Sequence

import pytest

from fakes.compactions import prepare_one
from fakes.double_stage import agent_on, open_double_stage, refusals, turn_requests
from fakes.provider_double import ProviderDouble, RequestRecord
from fakes.stage import Stage
from throughline.db.database import Database
from throughline.domain.run import RunStatus
from throughline.turn.prompting.context_report import report_context
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now

WISH = "Write a poem about ducks at the end."


async def talk(stage: Stage, turns: int) -> None:
    for number in range(turns):
        run = await stage.turn(f"number {number} " + "The tide came in late. " * 40)
        assert run.status is RunStatus.SUCCEEDED


async def talk_until_adopted(stage: Stage) -> None:
    """Take turns, with the next summary prepared behind each as by a worker, until one has adopted a summary."""
    for _ in range(40):
        await talk(stage, 1)
        if (await stage.reload()).summary_version:
            return
        await prepare_one(stage)
    raise AssertionError("no summary was adopted")


def grows(requests: Sequence[RequestRecord]) -> bool:
    """Return whether each prompt begins with the whole prompt before it."""
    pairs = itertools.pairwise(requests)
    return all(after.prompt[: len(before.prompt)] == before.prompt for before, after in pairs)


@pytest.mark.parametrize("is_asked_for", [True, False])
async def test_the_prompts_after_a_summary_each_begin_with_the_one_before(
    database: Database, provider_double: ProviderDouble, *, is_asked_for: bool
) -> None:
    agent = agent_on(provider_double, "openai:double-8k-cl100k", min_recent_messages=2)
    async with open_double_stage(database, agent) as stage:
        if is_asked_for:
            await talk(stage, 12)
            await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
            await talk(stage, 1)
        else:
            await talk_until_adopted(stage)
        await talk(stage, 3)
        version = (await stage.reload()).summary_version

    after = turn_requests(provider_double)[-4:]
    assert version == 1
    assert refusals(provider_double) == []
    assert "[Context Summary" in str(after[0].prompt[0])
    assert grows(after)


async def test_what_a_summary_frees_is_told_by_the_next_reports(
    database: Database, provider_double: ProviderDouble
) -> None:
    agent = agent_on(provider_double, "openai:double-8k-cl100k", min_recent_messages=2)
    async with open_double_stage(database, agent) as stage:
        await talk(stage, 20)
        before = await report_context(stage.dependencies, await stage.reload())
        await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
        after = await report_context(stage.dependencies, await stage.reload())
        await talk(stage, 1)
        later = await report_context(stage.dependencies, await stage.reload())

    assert after.usage_percent < before.usage_percent / 2
    assert later.usage_percent < before.usage_percent / 2


async def test_what_a_summary_was_asked_to_do_is_not_in_the_prompts_after_it(
    database: Database, provider_double: ProviderDouble
) -> None:
    agent = agent_on(provider_double, "openai:double-8k-cl100k", min_recent_messages=2)
    async with open_double_stage(database, agent) as stage:
        await talk(stage, 8)
        done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest(WISH))
        await talk(stage, 3)

    assert done.outcome == "adopted"
    told = [record.is_summary for record in provider_double.requests if "ducks" in json.dumps(record.prompt)]
    assert told
    assert all(told)
