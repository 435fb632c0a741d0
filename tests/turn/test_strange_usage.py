"""Turns on servers that report zeros, nothing, or a running total with each piece: the answer and all counts hold."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fakes.double_stage import open_double_stage
from fakes.raw_http_server import Answer, openai_stream, serve_raw
from fakes.stage import Stage, with_context
from throughline.agents.definition import DailyBudget
from throughline.db.database import Database
from throughline.domain.basic_types import JsonValue
from throughline.domain.message import text_of
from throughline.domain.run import RunStatus
from throughline.turn.prompting.planning import at_rest

WORDS = ("Noted, ", "all ", "of it.")
ZEROS: dict[str, JsonValue] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
MESSAGE = "The crane stood still at noon and nobody knew why. " * 20
UNLEARNED_FACTOR = 1.15


def answer(*usages: dict[str, JsonValue] | None, reason: str = "stop") -> Answer:
    """Return an answer of one piece for each usage, which comes with it; the last one ends the answer."""
    events: list[dict[str, JsonValue]] = []
    for number, (word, usage) in enumerate(zip(WORDS, usages, strict=True), 1):
        ended = reason if number == len(WORDS) else None
        choices: dict[str, JsonValue] = {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": ended}]}
        events.append(choices if usage is None else {**choices, "usage": usage})
    return openai_stream(*events)


def running_total(prompt_tokens: int) -> Answer:
    """Return an answer whose every piece reports the total so far."""
    totals: list[dict[str, JsonValue]] = [
        {"prompt_tokens": prompt_tokens, "completion_tokens": 2 * pieces} for pieces in (1, 2, 3)
    ]
    return answer(*totals)


@asynccontextmanager
async def open_on(database: Database, *answers: Answer) -> AsyncIterator[Stage]:
    """Open a stage whose users may use 700 tokens a day, on a server that gives these answers."""
    async with serve_raw(*answers) as server:
        agent = replace(with_context(window=8192), model="openai:local", base_url=f"{server.url}/v1")
        async with open_double_stage(database, replace(agent, daily_budget=DailyBudget(tokens=700))) as stage:
            yield stage


async def learned_factor(stage: Stage) -> float:
    return (await at_rest(stage.dependencies, await stage.reload()))[0].factor


@pytest.mark.parametrize("reason", ["stop", "length"])
@pytest.mark.parametrize(("usage", "output_tokens"), [(ZEROS, 0), (None, None)], ids=["zeros", "nothing"])
async def test_zeros_or_no_usage_keep_the_answer_and_teach_nothing(
    database: Database, usage: dict[str, JsonValue] | None, output_tokens: int | None, reason: str
) -> None:
    async with open_on(database, *[answer(usage, usage, usage, reason=reason)] * 3) as stage:
        runs = [await stage.turn(MESSAGE) for _ in range(3)]

        assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
        assert {(run.usage.input_tokens, run.usage.output_tokens) for run in runs} == {(None, output_tokens)}
        assert [text_of(message.content) for message in await stage.messages()] == [MESSAGE, "".join(WORDS)] * 3
        assert await learned_factor(stage) == UNLEARNED_FACTOR


async def test_a_running_total_with_each_piece_is_counted_once(database: Database) -> None:
    async with open_on(database, running_total(300), running_total(640)) as stage:
        runs = [await stage.turn(MESSAGE) for _ in range(3)]

        assert [(run.usage.input_tokens, run.usage.output_tokens) for run in runs[:2]] == [(300, 6), (640, 6)]
        assert await learned_factor(stage) < UNLEARNED_FACTOR
        assert runs[2].error is not None
        assert runs[2].error.type == "daily_budget_spent"
        assert "952 tokens" in runs[2].error.detail
