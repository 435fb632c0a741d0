"""Turns whose model call a server refuses: what the user reads, what the log says, and how often it is asked."""

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest
from structlog.testing import capture_logs

from fakes.compactions import prepare_one
from fakes.conversations import claim_next
from fakes.model_calls import ON_OPENAI_WIRE, refused_on_openai_wire, status_of
from fakes.own_tools import say
from fakes.provider_double import ProviderDouble, ScriptedCall, ScriptStep
from fakes.provider_double.refusals import Refused
from fakes.scripted_model import Call, Say, ScriptedModel, Step
from fakes.silent_metrics import ListedSpan, ListedTracing, parts_below
from fakes.stage import AGENT, Stage, agent_on, make_tool_box, open_double_stage, open_stage, refusals, turn_requests
from throughline.agents.registry import AgentRegistry
from throughline.db.database import Database
from throughline.db.sessions.repository import SessionChange
from throughline.domain.errors import ModelUnavailable, SettingInvalid
from throughline.domain.message import Role, ToolCall, text_of
from throughline.domain.run import Claimer, Run, RunStatus
from throughline.llm.classify_error import KnownRefusal
from throughline.llm.registry import ModelRegistry
from throughline.ports.models import ChatModel
from throughline.ports.tracing import NO_SPAN, SpanUnderWay, StepPart, create_untraced_task, traced
from throughline.turn.call_model import MAX_TRIES
from throughline.turn.state import TurnConfig
from throughline.turn.take_turn import take_turn

MODEL = "openai:double-8k-bytes2"
SECRET = "my locker is number nine hundred"


@dataclass(frozen=True, slots=True)
class RefusedStage:
    """A turn's stage whose model is OpenAI's package on the provider double."""

    stage: Stage
    double: ProviderDouble


@pytest.fixture
async def refused(database: Database, provider_double: ProviderDouble) -> AsyncIterator[RefusedStage]:
    registry = ModelRegistry()
    stage = await open_stage(database, agent=replace(AGENT, model=MODEL, base_url=provider_double.url))
    stage.dependencies = replace(stage.dependencies, models=registry)
    yield RefusedStage(stage, provider_double)
    await registry.close()


@pytest.mark.parametrize("known", ON_OPENAI_WIRE, ids=lambda known: known.name)
async def test_a_known_refusal_ends_the_turn_with_cause_and_remedy(refused: RefusedStage, known: KnownRefusal) -> None:
    calls = MAX_TRIES if issubclass(known.kind, ModelUnavailable) else 1
    refused.double.script(*[ScriptStep(refused=refused_on_openai_wire(known))] * calls)

    with capture_logs() as logs:
        run = await refused.stage.turn(f"Hello, {SECRET}")

    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.type == known.kind.code
    assert run.error.detail.startswith(f"{MODEL}: {known.cause}. {known.remedy} ({status_of(known)}")
    failed = next(entry for entry in logs if entry["event"] == "turn failed")
    assert failed["error"] == known.kind.code
    assert failed["provider_message"] == run.error.provider_message != ""
    retries = [entry for entry in logs if entry["event"] == "model call retried"]
    assert [entry["provider_message"] for entry in retries] == [failed["provider_message"]] * (calls - 1)


async def test_the_log_has_the_providers_words_and_none_of_the_users(refused: RefusedStage) -> None:
    said = f"Cannot process content {SECRET} for key sk-abcdefgh: flag --enable-this is not set"
    refused.double.script(ScriptStep(refused=Refused(said)))

    with capture_logs() as logs:
        run = await refused.stage.turn(f"Hello, {SECRET}")

    failed = next(entry for entry in logs if entry["event"] == "turn failed")
    assert failed["provider_message"] == "Cannot process content … for key … flag --enable-this is not set"
    assert run.error is not None
    assert "enable-this" not in run.error.detail


async def test_without_words_of_the_provider_the_log_has_no_field_for_them(refused: RefusedStage) -> None:
    refused.double.script(ScriptStep(refused=Refused("", status=400, raw="<html>Bad</html>")))

    with capture_logs() as logs:
        await refused.stage.turn("Hello")

    assert "provider_message" not in next(entry for entry in logs if entry["event"] == "turn failed")


WORDS = "keep what I say"


class NoModels:
    """Models of which none can be used any more."""

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        del api_key_env
        raise SettingInvalid(f"{model!r} at {base_url!r} cannot be used.")


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
        await claim_next(stage.database.runs, Claimer(worker="dying", lease_seconds=0))

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


async def open_capped_stage(database: Database, config: TurnConfig, *steps: Step) -> Stage:
    tools = make_tool_box(imported=(SAY,), timeout_seconds=30, max_result_bytes=1_000_000)
    agent = replace(AGENT, tools=(SAY,))
    return await open_stage(database, agent=agent, model=ScriptedModel(*steps), tools=tools, config=config)


def calls(number: int, *, words: int) -> Call:
    arguments = f'{{"text": "word ", "times": {words}}}'
    return Call(tuple(ToolCall(f"c{index}", "say", arguments) for index in range(number)))


async def results(stage: Stage) -> list[tuple[str, bool]]:
    """Return the text of each result in the order of the calls, and whether it is an error."""
    stored = [message for message in await stage.messages() if message.role is Role.TOOL]
    ordered = sorted(stored, key=lambda message: int((message.tool_call_id or "c0")[1:]))
    return [(text_of(message.content), message.metadata.get("is_error") is True) for message in ordered]


async def test_the_first_calls_of_a_step_run_and_the_others_get_an_error(database: Database) -> None:
    config = TurnConfig(token_counter="chars", max_calls_per_step=3)
    stage = await open_capped_stage(database, config, calls(5, words=1), Say("done"))

    run = await stage.turn("Go")

    assert run.status is RunStatus.SUCCEEDED
    assert [is_error for _, is_error in await results(stage)] == [False, False, False, True, True]
    assert "number 5 of its step, and the first 3 run" in (await results(stage))[4][0]


async def test_the_results_of_a_step_share_their_room(database: Database) -> None:
    config = TurnConfig(token_counter="chars", max_parallel_tools=1, max_step_result_bytes=50_000)
    stage = await open_capped_stage(database, config, calls(4, words=4_000), Say("done"))

    run = await stage.turn("Go")

    texts = await results(stage)
    assert run.status is RunStatus.SUCCEEDED
    assert [is_error for _, is_error in texts] == [False, False, True, True]
    assert "it has 20000 bytes, and of the 50000 bytes" in texts[2][0]


async def test_an_answer_that_does_not_end_is_stopped(database: Database) -> None:
    config = TurnConfig(token_counter="chars", max_answer_bytes=1_000)
    stage = await open_capped_stage(database, config, Say("漢字 " * 200), Say("short"))

    run = await stage.turn("Go on for ever")
    after = await stage.turn("Briefly")

    assert run.status is RunStatus.FAILED
    assert run.error is not None
    assert run.error.type == "answer_too_long"
    assert "the 1000 bytes an answer may have" in run.error.detail
    assert after.status is RunStatus.SUCCEEDED
    assert [text_of(message.content) for message in await stage.messages()] == ["Go on for ever", "Briefly", "short"]


async def test_each_node_of_the_graph_and_what_it_calls_is_a_part(database: Database) -> None:
    stage = await open_stage(database)
    tracing = ListedTracing()
    stage.dependencies = replace(stage.dependencies, tracing=tracing)
    stage.model.script(Call((ToolCall("c1", "calculator", '{"expression": "1+1"}'),)), Say("2"))

    run = await stage.turn("add")

    (root,) = tracing.roots
    assert isinstance(root.part, Run)
    assert (root.part.id, root.ends) == (run.id, [None])
    nodes = ["process_message", "retrieve_context", "save_user_message", "llm_node", "tool_node", "llm_node"]
    assert parts_below(root) == nodes
    parts = {name: below for name, span in zip(nodes, _steps(root), strict=True) if (below := parts_below(span))}
    assert parts == {"llm_node": ["ModelCallPart"], "tool_node": ["ToolCallPart"]}


def _steps(root: ListedSpan) -> list[ListedSpan]:
    return [one for one in root.below if isinstance(one.part, StepPart)]


async def test_nothing_is_a_part_where_no_span_is_under_way() -> None:
    with traced(StepPart("alone")) as span:
        assert span is NO_SPAN
        assert traced(StepPart("below")) is NO_SPAN


async def test_an_untraced_task_belongs_to_no_span() -> None:
    root = ListedSpan(StepPart("root"))

    async def work() -> None:
        with traced(StepPart("work")):
            await asyncio.sleep(0)

    with SpanUnderWay(root):
        await create_untraced_task(work())
        await asyncio.create_task(work())

    assert parts_below(root) == ["work"]
