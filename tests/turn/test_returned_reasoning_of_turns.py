"""Reasoning goes back within its run, to the model that wrote it, also after a crash; counted, and then forgotten."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from fakes.anthropic_double import AnthropicDouble
from fakes.anthropic_double.thinking import KINDS, sign
from fakes.one_tool import OneTool
from fakes.pooler import urls_of
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.provider_double.json_types import Json
from fakes.raw_sql import end_leases, run_sql
from fakes.scripted_model import Call, Fail, Say
from fakes.stage import AGENT, Stage, open_stage
from fakes.waiting import HANG_SECONDS, until
from throughline.agents.definition import AgentDefinition, OtherModel, ReasoningUse
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import ModelInvalidRequest
from throughline.domain.message import ToolCall
from throughline.domain.prompt import ModelParameters
from throughline.domain.run import RunStatus
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.turn.take_turn import take_turn

THINKING = ModelParameters(body={"thinking": {"type": "enabled", "budget_tokens": 1024}})
CLAUDE = "double-16k-cl100k"
STEP = ScriptStep(
    text="Let me look.", calls=(ScriptedCall("c1", "look"),), thinking="I have to look.", redacted="Hidden thoughts."
)
BLOCKS = [
    {"type": "redacted_thinking", "data": f"{sign(CLAUDE, 'Hidden thoughts.')} Hidden thoughts."},
    {"type": "thinking", "thinking": "I have to look.", "signature": sign(CLAUDE, "I have to look.")},
]
PARTS = ({"type": "thinking", "thinking": "I add.", "signature": "c2ln"},)
KEPT = "select parts #>> '{0,thinking}' from returned_reasoning"


@pytest.fixture
async def models() -> AsyncIterator[ModelRegistry]:
    registry = ModelRegistry(ModelsConfig(idle_timeout_seconds=HANG_SECONDS))
    yield registry
    await registry.close()


def claude(url: str, **changes: object) -> AgentDefinition:
    agent = replace(AGENT, model=f"anthropic:{CLAUDE}", base_url=url, tools=("look",), parameters=THINKING)
    return replace(agent, **changes)  # type: ignore[arg-type]  # fields by name


async def open_on(
    database: Database, models: ModelRegistry, agent: AgentDefinition, tool: OneTool | None = None
) -> Stage:
    stage = await open_stage(database, agent=agent, tools=tool or OneTool("look", "seen", repeatable=True))
    stage.dependencies = replace(stage.dependencies, models=models)
    return stage


def thoughts(prompt: Sequence[Json]) -> list[list[Json]]:
    """Return the blocks of thinking of each step in the prompt."""
    said = [message["content"] for message in prompt if message["role"] == "assistant"]
    return [[block for block in content if block["type"] in KINDS] for content in said if isinstance(content, list)]


async def test_blocks_go_back_in_their_run_and_in_no_later_one(
    database: Database, anthropic_double: AnthropicDouble, models: ModelRegistry
) -> None:
    stage = await open_on(database, models, claude(anthropic_double.url))
    again = replace(STEP, text="", calls=(ScriptedCall("c2", "look"),), thinking="And again.", redacted="")
    anthropic_double.script(STEP, again, ScriptStep(text="Seen.", thinking="Done."), ScriptStep(text="Bye."))

    first = await stage.turn("look twice")
    second = await stage.turn("thanks")

    assert (first.status, second.status) == (RunStatus.SUCCEEDED, RunStatus.SUCCEEDED)
    within = [thoughts(request.prompt) for request in anthropic_double.requests]
    other = {"type": "thinking", "thinking": "And again.", "signature": sign(CLAUDE, "And again.")}
    assert within == [[], [BLOCKS], [BLOCKS, [other]], [[], []]]


async def test_a_new_process_that_resumes_the_run_sends_them_too(
    database: Database, database_url: str, anthropic_double: AnthropicDouble, models: ModelRegistry
) -> None:
    agent = claude(anthropic_double.url, reasoning=ReasoningUse.DROP)
    tool = OneTool("look", "seen", repeatable=True, hangs_at_first=True)
    stage = await open_on(database, models, agent, tool)
    anthropic_double.script(STEP, ScriptStep(text="Seen."))
    run = await stage.submit("look")
    dying = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))
    await until(lambda: len(tool.keys) == 1)
    dying.cancel()
    await asyncio.wait({dying})
    await end_leases(database_url)

    heir = await Database.open(DatabaseConfig(**urls_of(database_url)))
    other = ModelRegistry(ModelsConfig(idle_timeout_seconds=HANG_SECONDS))
    successor = await open_on(heir, other, agent, tool)
    await take_turn(successor.turn_start(await successor.claim()))
    ended = await heir.runs.get_run(stage.owner_id, run.id)
    await other.close()
    await heir.close()

    assert (ended.status, ended.attempt) == (RunStatus.SUCCEEDED, 2)
    assert thoughts(anthropic_double.requests[-1].prompt) == [BLOCKS]
    assert await run_sql(database_url, "select * from message_reasoning") == []
    assert await run_sql(database_url, "select * from returned_reasoning") == []


async def test_another_model_is_not_sent_them(
    database: Database, anthropic_double: AnthropicDouble, models: ModelRegistry
) -> None:
    spare = OtherModel("anthropic:double-32k-cl100k", anthropic_double.url)
    stage = await open_on(database, models, claude(anthropic_double.url, fallback_models=(spare,)))
    down = ScriptStep(failure=Failure.OVERLOADED)
    anthropic_double.script(STEP, down, down, ScriptStep(text="Seen."))

    run = await stage.turn("look")

    assert run.status is RunStatus.SUCCEEDED
    assert [(request.model, thoughts(request.prompt)) for request in anthropic_double.requests[1:]] == [
        (CLAUDE, [BLOCKS]),
        (CLAUDE, [BLOCKS]),
        ("double-32k-cl100k", [[]]),
    ]


async def test_a_server_that_requires_reasoning_gets_it_with_every_step(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    model = "openai:double-16k-cl100k-thinks"
    agent = claude(provider_double.url, model=model, parameters=ModelParameters(return_reasoning=True))
    stage = await open_on(database, models, agent)
    step = replace(STEP, redacted="")
    provider_double.script(step, ScriptStep(text="Seen.", thinking="Done."), ScriptStep(text="Bye."))

    for text in ("look", "thanks"):
        assert (await stage.turn(text)).status is RunStatus.SUCCEEDED

    sent = [
        [message.get("reasoning_content") for message in request.prompt if message["role"] == "assistant"]
        for request in provider_double.requests
    ]
    assert sent == [[], ["I have to look."], ["", None]]


async def test_a_server_that_knows_none_gets_none(
    database: Database, provider_double: ProviderDouble, models: ModelRegistry
) -> None:
    agent = claude(provider_double.url, model="openai:double-16k-cl100k", parameters=ModelParameters())
    stage = await open_on(database, models, agent)
    provider_double.script(replace(STEP, redacted=""), ScriptStep(text="Seen."))

    run = await stage.turn("look")

    assert run.status is RunStatus.SUCCEEDED
    assert await stage.messages() != ()


async def test_what_is_sent_back_is_counted(database: Database) -> None:
    sizes, stored = [], set[int]()
    for thinking in ("", "word " * 400):
        stage = await open_stage(database)
        parts = ({"type": "thinking", "thinking": thinking, "signature": ""},) if thinking else ()
        stage.model.script(Call((sum_call(),), parts=parts), Say("5"))
        await stage.turn("2+3?")
        sent = [fields["tokens"] for name, fields in stage.metrics.reports if name == "prompt_sent"]
        sizes.append(int(str(sent[-1])))
        stored.add((await stage.messages())[1].token_count)

    assert sizes[1] - sizes[0] > 400
    assert len(stored) == 1, "later turns load the step without it"


async def test_it_is_left_out_where_it_would_not_fit(database: Database) -> None:
    stage = await open_stage(database)
    huge = ({"type": "thinking", "thinking": "word " * 8_000, "signature": ""},)
    stage.model.script(Call((sum_call(),), parts=huge), Say("5"))

    run = await stage.turn("2+3?")

    assert run.status is RunStatus.SUCCEEDED
    assert [message.reasoning for message in stage.model.requests[1].prompt.messages] == [None, None, None]


@pytest.mark.parametrize("last", [Say("5"), Fail(ModelInvalidRequest("no"))])
async def test_it_is_forgotten_when_the_run_ends(database: Database, database_url: str, last: Say | Fail) -> None:
    stage = await open_stage(database)
    stage.model.script(Call((sum_call(),), thinks="I add.", parts=PARTS), last)

    await stage.turn("2+3?")

    assert len(stage.model.requests[1].prompt.messages) == 3
    assert await run_sql(database_url, KEPT) == []
    assert await run_sql(database_url, "select text from message_reasoning") == [("I add.",)]


async def test_it_is_forgotten_when_a_run_that_was_given_back_is_cancelled(
    database: Database, database_url: str
) -> None:
    tool = OneTool("look", "seen", repeatable=True, hangs_at_first=True)
    stage = await open_stage(database, agent=replace(AGENT, tools=("look",)), tools=tool)
    stage.model.script(Call((ToolCall("c1", "look", "{}"),), parts=PARTS))
    run = await stage.submit("look")
    claimed = await stage.claim()
    stopped = asyncio.create_task(take_turn(stage.turn_start(claimed)))
    await until(lambda: len(tool.keys) == 1)
    stopped.cancel()
    await asyncio.wait({stopped})
    await database.runs.give_back(claimed.lease)
    kept = await run_sql(database_url, KEPT)

    await database.runs.request_cancel(stage.owner_id, run.id)

    assert kept == [("I add.",)]
    assert await run_sql(database_url, KEPT) == []


def sum_call() -> ToolCall:
    return ToolCall("c1", "calculator", '{"expression": "2+3"}')
