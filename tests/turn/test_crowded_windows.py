"""Windows with hardly any room: what an answer may take, or what is in every prompt, fills them almost alone."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.compactions import prepare_one
from fakes.double_stage import agent_on, open_double_stage, refusals, turn_requests
from fakes.provider_double import ProviderDouble
from fakes.waiting_turns import send
from throughline.agents.registry import AgentDefaults, load_agents
from throughline.context.calibration import Calibration
from throughline.db.database import Database
from throughline.domain.prompt import ToolSpec
from throughline.domain.run import RunStatus
from throughline.turn.check_agents import check_agents
from throughline.turn.prompting.planning import at_rest

AGENT_FILE = """
name: assistant
model: openai:double-40000-cl100k
base_url: {url}
context: {{window: 40000, response_reserve: {reserve}, token_counter: "tiktoken:cl100k_base"}}
"""


@pytest.mark.parametrize("reserve", [32_000, 40_000])
async def test_answers_that_may_be_as_long_as_the_window_leave_room_for_a_message(
    database: Database, provider_double: ProviderDouble, tmp_path: Path, reserve: int
) -> None:
    (tmp_path / "a.yaml").write_text(AGENT_FILE.format(url=provider_double.url, reserve=reserve))
    agent = load_agents([tmp_path], AgentDefaults(usage_threshold=0.8, summary_model="")).get("assistant")
    async with open_double_stage(database, agent) as stage:
        await check_agents(stage.dependencies, [agent])

        runs = [await stage.turn(text) for text in ("hi", "and again", "word " * 8_000, "still there?")]

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert refusals(provider_double) == []
    assert len(provider_double.requests) == len(runs)


TOOLS = tuple(
    ToolSpec(f"tool_{number}", "word " * 200, {"type": "object", "properties": {}, "additionalProperties": False})
    for number in range(60)
)
FITS_NOT = "only 15344 of the window of 15600 may be used: shorten the system prompt, name fewer tools"


@pytest.mark.parametrize(("window", "is_answered"), [(17_400, True), (15_600, False)])
async def test_tools_that_fill_the_window_do_not_make_every_turn_write_a_summary(
    database: Database, provider_double: ProviderDouble, window: int, *, is_answered: bool
) -> None:
    agent = agent_on(
        provider_double, f"openai:double-{window}-cl100k", window=window, response_reserve=256, min_recent_messages=2
    )
    async with open_double_stage(database, replace(agent, system_prompt="rule " * 800)) as stage:
        ready, _ = await at_rest(stage.dependencies, await stage.reload())
        await stage.dependencies.calibrations.save(ready.calibration_key, Calibration(ratio=1.0, samples=20))
        written = [0]
        for number in range(10):
            run = await send(stage, f"number {number} " + "word " * 100, tools=TOOLS)
            await prepare_one(stage)
            assert (run.error is None) is is_answered
            assert run.error is None or (run.error.type, FITS_NOT in run.error.detail) == ("prompt_cannot_fit", True)
            written.append(sum(record.is_summary for record in provider_double.requests))

    assert refusals(provider_double) == []
    assert max(after - before for before, after in itertools.pairwise(written)) <= 1
    assert bool(turn_requests(provider_double)) is is_answered
