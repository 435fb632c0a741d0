"""Messages that alone take much of the window, or many windows: pastes, answers and tool outputs of every kind."""

import base64
import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes.compactions import prepare_one
from fakes.double_stage import agent_on, open_double_stage, refusals, turn_requests
from fakes.own_tools import say
from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.tool_box import make_tool_box
from throughline.agents.registry import AgentRegistry
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.domain.message import Role, text_of
from throughline.domain.run import RunStatus

SAY = "fakes.own_tools:say"


def calling(call_id: str, text: str, times: int) -> ScriptStep:
    return ScriptStep(calls=(ScriptedCall(call_id, say.__name__, json.dumps({"text": text, "times": times})),))


def random_bytes(size: int) -> str:
    return base64.b64encode(random.Random(size).randbytes(size)).decode()


OUTPUTS: Sequence[tuple[str, int]] = [
    (random_bytes(3_000), 60),
    ("港口负责人把每一艘天黑以后进港的船都记在账簿里。", 6_000),
    ('{"id":1,"tags":["a","b"],"text":"no end of line"},', 9_000),
    (random_bytes(90), 2_200),
    ("漢", 150_000),
    ('[[1,2],{"k":"\\u00e9"}],', 14_000),
]
"""Six outputs of about 150,000 tokens each: base64, Chinese, and JSON on one line."""


@pytest.mark.slow
async def test_a_short_conversation_with_six_huge_outputs_goes_on(
    database: Database, provider_double: ProviderDouble
) -> None:
    agent = replace(agent_on(provider_double, "openai:double-32k-cl100k", window=32 * 1024), tools=(SAY,))
    tools = make_tool_box(imported=(SAY,), max_result_bytes=2_000_000)
    for number, (text, times) in enumerate(OUTPUTS):
        provider_double.script(calling(f"c{number}", text, times), then_default=True)
        provider_double.script(ScriptStep(text=f"That was output {number}."), then_default=True)
    async with open_double_stage(database, agent, tools=tools) as stage:
        runs = [await stage.turn(f"Question {number}: what is in it?") for number in range(7)]
        await prepare_one(stage)
        runs += [await stage.turn(f"Question {number}?") for number in range(7, 9)]
        stored = await stage.messages()

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert refusals(provider_double) == []
    assert len(stored) == 30
    assert "Question 0: what is in it?" in json.dumps(turn_requests(provider_double)[-1].prompt)


async def test_a_paste_stands_whole_in_the_last_call_of_a_turn_with_many_outputs(
    database: Database, provider_double: ProviderDouble
) -> None:
    paste = " ".join(f"line-{number:04d}" for number in range(830))
    agent = agent_on(provider_double, "openai:double-16k-cl100k", window=16 * 1024)
    agent = replace(agent, tools=(SAY,), max_tool_rounds=40)
    tools = make_tool_box(imported=(SAY,))
    for number in range(20):
        provider_double.script(calling(f"c{number}", f"output {number} of many words ", 500), then_default=True)
    async with open_double_stage(database, agent, tools=tools) as stage:
        run = await stage.turn(f"Compare with this:\n{paste}")

    assert run.status is RunStatus.SUCCEEDED
    assert refusals(provider_double) == []
    assert all(paste in json.dumps(record.prompt) for record in turn_requests(provider_double))


async def test_after_an_answer_of_most_of_the_window_short_turns_are_answered(
    database: Database, provider_double: ProviderDouble
) -> None:
    large = agent_on(provider_double, "openai:double-32k-cl100k", window=32 * 1024, response_reserve=8192)
    small = agent_on(provider_double, "openai:double-8k-cl100k", window=8192, min_recent_messages=2)
    provider_double.script(ScriptStep(text="word " * int(0.6 * 8192)), then_default=True)
    async with open_double_stage(database, large) as stage:
        agents = AgentRegistry([large, replace(small, name="small")])
        stage.dependencies = replace(stage.dependencies, agents=agents)
        runs = [await stage.turn("Write a novel")]
        await database.sessions.update(stage.owner_id, stage.session.id, SessionChange(agent="small"))
        runs += [await stage.turn(text) for text in ("ok", "and then?", "thanks")]
        answers = [text_of(message.content) for message in await stage.messages() if message.role is Role.ASSISTANT]

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert refusals(provider_double) == []
    assert turn_requests(provider_double)[1].prompt_tokens > 0.6 * 8192
    assert [answer.startswith("Answer") for answer in answers] == [False, True, True, True]
