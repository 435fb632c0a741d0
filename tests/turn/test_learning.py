"""What a turn learns of how a provider counts, and from which calls it learns nothing."""

import itertools
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from context.strategies import Said, conversation_input
from fakes.anthropic_double import AnthropicDouble
from fakes.compactions import prepare_one
from fakes.conversations import claim_next
from fakes.provider_double import ProviderDouble
from fakes.provider_double.double import Verdict
from fakes.raw_http_server import Answer, openai_stream, serve_raw
from fakes.scripted_model import Call, Fail, Say, ScriptedModel, Step
from fakes.scripted_turns import send
from fakes.stage import (
    AGENT,
    LEARNED_KEY,
    Stage,
    agent_on,
    open_double_stage,
    open_stage,
    refusals,
    turn_requests,
    with_context,
)
from fakes.waiting import HANG_SECONDS
from throughline.agents.definition import AgentDefinition, DailyBudget
from throughline.agents.registry import AgentDefaults, AgentRegistry, load_agents
from throughline.context.calibration import Calibration
from throughline.context.fit_prompt import fit_prompt
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.domain.basic_types import JsonValue
from throughline.domain.errors import ContextOverflow
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, ToolCall, text_of
from throughline.domain.prompt import ModelRequest, Prompt, ToolSpec, Usage
from throughline.domain.run import Claimer, RunStatus
from throughline.llm.counters import CharsCounter, make_counter
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.turn.prompting.calibrate import learn_from_overflow
from throughline.turn.prompting.check_agents import check_agents
from throughline.turn.prompting.context_report import report_context
from throughline.turn.prompting.planning import at_rest
from throughline.turn.state import TurnConfig
from throughline.turn.take_turn import take_turn
from throughline.wire.context import ContextOut
from throughline.wire.events import event_json


def adding(call_id: str) -> Call:
    return Call((ToolCall(call_id, "calculator", '{"expression": "1+1"}'),))


def look(number: int = 1) -> Content:
    return (TextBlock("Look:"), *(ImageBlock(f"https://example.org/{index}.png") for index in range(number)))


def images_in(prompt: Prompt) -> int:
    blocks = [block for message in prompt.messages if isinstance(message.content, tuple) for block in message.content]
    return sum(isinstance(block, ImageBlock) for block in blocks)


async def ratio(stage: Stage) -> float | None:
    known = await stage.dependencies.calibrations.load(LEARNED_KEY)
    return None if known is None else known.ratio


async def test_a_call_with_tools_teaches_how_the_provider_counts(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("hello", usage=Usage(1000, 1)))

    await stage.turn("hi")

    assert await ratio(stage) not in {None, 1.0}


async def test_the_report_of_a_turn_counts_as_the_one_asked_for_after_it(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("hello", usage=Usage(60, 1)))

    run = await stage.turn("hi")

    told = event_json((await stage.events(run))[-1].event)["context"]
    assert told == ContextOut.render(await report_context(stage.dependencies, await stage.reload()))
    assert await ratio(stage) not in {None, 1.0}


async def test_the_call_after_the_last_tool_round_teaches_nothing(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.script(adding("a"), adding("b"), adding("c"), Say("enough", usage=Usage(60, 1)))

    run = await stage.turn("loop")

    assert run.status is RunStatus.SUCCEEDED
    assert [request.may_call_tools for request in stage.model.requests] == [True, True, True, False]
    assert await ratio(stage) is None


@pytest.mark.parametrize("reported", [100, 25_501], ids=["cheap", "dear"])
async def test_an_image_teaches_nothing_of_text_whatever_it_costs(database: Database, reported: int) -> None:
    stage = await open_stage(database)
    stage.model.script(Say("nice", usage=Usage(reported, 1)))

    await stage.turn(look())

    assert await ratio(stage) is None


@pytest.mark.parametrize(
    "refusal",
    [
        ContextOverflow("too long"),
        ContextOverflow("too long", window_tokens=32_000),
        ContextOverflow("too long", window_tokens=32_000, prompt_tokens=104_000),
    ],
    ids=["no numbers", "the window", "both"],
)
async def test_a_refused_prompt_with_images_is_made_smaller_and_teaches_nothing_of_text(
    database: Database, refusal: ContextOverflow
) -> None:
    stage = await open_stage(database, model=ScriptedModel(context_limit=32_000))
    sent: list[int] = []

    def answer(request: ModelRequest) -> Step:
        if "You write the memory of a conversation" in request.prompt.system:
            return Say("## Intent\nThe user shows pictures.")
        sent.append(images_in(request.prompt))
        return Fail(refusal) if sent.count(4) == 1 and sent[-1] == 4 else Say("nice")

    stage.model.by_request = answer
    runs = [await stage.turn(content) for content in (look(), look(), look(), look(), "and now?")]

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert sent[:4] == [1, 2, 3, 4]
    assert sent[4] < 4
    assert await ratio(stage) in {None, 1.0}


async def test_a_refused_prompt_with_images_counts_for_far_more_until_the_turn_ends(
    database: Database,
) -> None:
    stage = await open_stage(database)
    known = Calibration(ratio=1.1, samples=20)
    agent, _ = await at_rest(stage.dependencies, await stage.reload())
    await stage.dependencies.calibrations.save(agent.calibration_key, known)
    fitted = fit_prompt(conversation_input([Said(Role.USER, look(4))]))
    refusal = ContextOverflow("too long", prompt_tokens=16 * fitted.raw_tokens)

    learned = await learn_from_overflow(stage.dependencies, agent, refusal, fitted)

    assert learned.factor > 3
    assert await stage.dependencies.calibrations.load(agent.calibration_key) == known


async def test_what_is_learned_of_one_counter_holds_for_no_other(database: Database) -> None:
    stage = await open_stage(database)
    agent, _ = await at_rest(stage.dependencies, await stage.reload())
    other = replace(agent, counter=make_counter("tiktoken"))

    await stage.dependencies.calibrations.save(other.calibration_key, Calibration(ratio=0.6, samples=20))

    assert other.calibration_key == agent.model.calibration_key  # as it was stored before there were others
    assert (await at_rest(stage.dependencies, await stage.reload()))[0].factor == agent.factor


TURNS = int(os.environ.get("MODEL_CHANGE_TURNS", "72"))
CHANGES = 8
WORDS = ("harbour", "crane", "tide", "Überfahrt", "码头", "ledger", "manifest", "0x7f3a", "quay-17", "€42.50")


def agents_on(openai: str, anthropic: str) -> list[AgentDefinition]:
    models = [
        ("openai:double-128k-cl100k", openai),
        ("openai:double-8k-cl100k", openai),
        ("anthropic:double-32k-cl100k", anthropic),
        ("openai:double-6k-cl100k", openai),
        ("anthropic:double-8k-cl100k", anthropic),
    ]
    return [
        replace(
            AGENT,
            name=f"agent{number}",
            model=model,
            base_url=url,
            tools=(),
            context=replace(
                AGENT.context,
                token_counter="tiktoken:cl100k_base",
                window=int(model.split("-")[1].removesuffix("k")) * 1024,
            ),
        )
        for number, (model, url) in enumerate(models)
    ]


@pytest.mark.slow
async def test_no_turn_is_refused_over_or_invalid_through_many_changes_of_model(
    database: Database, provider_double: ProviderDouble, anthropic_double: AnthropicDouble
) -> None:
    agents = agents_on(provider_double.url, anthropic_double.url)
    config = ModelsConfig(idle_timeout_seconds=HANG_SECONDS, connect_timeout_seconds=HANG_SECONDS)
    models, chance = ModelRegistry(config), random.Random(36)
    stage = await open_stage(database, agent=agents[0], config=TurnConfig(token_counter="chars"))
    stage.dependencies = replace(stage.dependencies, models=models, agents=AgentRegistry(agents))
    try:
        for turn, agent in zip(range(TURNS), itertools.cycle(_runs_of(agents, TURNS // (CHANGES + 1))), strict=False):
            await change_agent(stage, agent)
            words = " ".join(chance.choices(WORDS, k=chance.choice((5, 60, 700))))
            run = await stage.turn(f"{turn}: {words}")
            assert (turn, run.status, run.error) == (turn, RunStatus.SUCCEEDED, None)
    finally:
        await models.close()

    records = [*provider_double.requests, *anthropic_double.requests]
    wrong = [(record.number, record.model, record.refusal) for record in records if record.verdict != Verdict.ANSWERED]
    assert wrong == []
    assert len({record.model for record in records}) == len({agent.model.split(":")[1] for agent in agents})


def _runs_of(agents: list[AgentDefinition], turns: int) -> list[str]:
    return [agent.name for agent in agents for _ in range(turns)]


async def change_agent(stage: Stage, agent: str) -> None:
    await stage.database.sessions.update(stage.owner_id, stage.session.id, SessionChange(agent=agent))


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


STRANGE_WORDS = ("Noted, ", "all ", "of it.")
ZEROS: dict[str, JsonValue] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
MESSAGE = "The crane stood still at noon and nobody knew why. " * 20
UNLEARNED_FACTOR = 1.15


def answer(*usages: dict[str, JsonValue] | None, reason: str = "stop") -> Answer:
    """Return an answer of one piece for each usage, which comes with it; the last one ends the answer."""
    events: list[dict[str, JsonValue]] = []
    for number, (word, usage) in enumerate(zip(STRANGE_WORDS, usages, strict=True), 1):
        ended = reason if number == len(STRANGE_WORDS) else None
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
        assert [text_of(message.content) for message in await stage.messages()] == [MESSAGE, "".join(STRANGE_WORDS)] * 3
        assert await learned_factor(stage) == UNLEARNED_FACTOR


async def test_a_running_total_with_each_piece_is_counted_once(database: Database) -> None:
    async with open_on(database, running_total(300), running_total(640)) as stage:
        runs = [await stage.turn(MESSAGE) for _ in range(3)]

        assert [(run.usage.input_tokens, run.usage.output_tokens) for run in runs[:2]] == [(300, 6), (640, 6)]
        assert await learned_factor(stage) < UNLEARNED_FACTOR
        assert runs[2].error is not None
        assert runs[2].error.type == "daily_budget_spent"
        assert "952 tokens" in runs[2].error.detail


class Choking(Exception):
    """What a counter raises that cannot take a text."""


@dataclass
class ChokingCounter:
    """Counts like `chars`, but for one word."""

    name: str = "choking"
    asked: list[str] = field(default_factory=list)

    def count(self, text: str) -> int:
        """Raises Choking for a text with `poison` in it."""
        self.asked.append(text)
        if "poison" in text:
            raise Choking
        return CharsCounter().count(text)


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database, agent=with_context(token_counter="choking"))


def count_with_choking(stage: Stage) -> ChokingCounter:
    counter = ChokingCounter()
    stage.dependencies = replace(
        stage.dependencies, make_counter=lambda name: CharsCounter() if name == "chars" else counter
    )
    return counter


async def test_a_text_that_a_counter_cannot_take_fails_its_own_turn_only(stage: Stage) -> None:
    counter = count_with_choking(stage)
    stage.model.script(Say("well"))

    first = await stage.turn("poison")
    counter.asked.clear()
    second = await stage.turn("and now?")

    assert [first.status, second.status] == [RunStatus.FAILED, RunStatus.SUCCEEDED]
    assert "poison" not in counter.asked
    assert text_of(stage.model.requests[-1].prompt.messages[0].content) == "poison"


async def test_a_message_that_no_process_survived_is_not_counted_by_later_turns(stage: Stage) -> None:
    counter = count_with_choking(stage)
    await stage.submit("poison")
    for _ in range(3):
        await claim_next(stage.database.runs, Claimer(worker="dying", lease_seconds=0))

    await take_turn(stage.turn_start(await stage.claim()))

    (kept,) = await stage.messages()
    assert (kept.counter, kept.token_count > 0) == ("choking", True)
    assert "poison" not in counter.asked
