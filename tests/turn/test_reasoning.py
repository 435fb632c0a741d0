"""Reasoning in turns: shown as events of its own, stored apart from messages, bounded, taken back by a reset."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from fakes.anthropic_double import AnthropicDouble
from fakes.anthropic_double.messages_request import KINDS, sign
from fakes.pooler import urls_of
from fakes.provider_double import Failure, ProviderDouble, ScriptedCall, ScriptStep
from fakes.provider_double.json_types import Json
from fakes.raw_sql import end_leases, run_sql
from fakes.scripted_model import Call, Fail, Hang, Say
from fakes.stage import AGENT, OneTool, Stage, open_stage, with_context
from fakes.waiting import HANG_SECONDS, until, until_found
from throughline.agents.definition import AgentDefinition, OtherModel, ReasoningUse
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.errors import ModelInvalidRequest, ModelUnavailable
from throughline.domain.events import AnswerReset, MessageDelta, ReasoningDelta, RunEvent
from throughline.domain.message import Message, ToolCall
from throughline.domain.prompt import ModelParameters
from throughline.domain.reasoning import CUT_MARK, MAX_REASONING_CHARACTERS, Reasoning
from throughline.domain.run import Run, RunStatus
from throughline.llm.registry import ModelRegistry, ModelsConfig
from throughline.turn.state import TurnConfig
from throughline.turn.take_turn import take_turn

CALL = ToolCall("c1", "calculator", '{"expression": "2+3"}')
STEPS = (Call((CALL,), thinks="I add them."), Say("It is 5", thinks="So it is five."))
ROWS = "select t.text, t.is_shown from message_reasoning t join messages m on m.id = t.message_id order by m.position"


async def read(stage: Stage, query: MessageQuery) -> list[Message]:
    return list((await stage.database.messages.list_messages(stage.owner_id, stage.session.id, query)).items)


def thought(events: "list[RunEvent]") -> str:
    return "".join(event.event.text for event in events if isinstance(event.event, ReasoningDelta))


async def test_readers_get_it_before_the_text_of_its_step(stage: Stage) -> None:
    stage.model.script(*STEPS)

    run = await stage.turn("2+3?")

    told = [event.type.value for event in await stage.events(run)]
    assert told == [
        "run.started",
        "reasoning.delta",
        "message.completed",
        "tool.call",
        "tool.result",
        "reasoning.delta",
        "message.delta",
        "message.completed",
        "run.completed",
    ]
    assert thought(list(await stage.events(run))) == "I add them.So it is five."


async def test_it_is_stored_apart_and_read_only_where_it_is_asked_for(stage: Stage, database_url: str) -> None:
    stage.model.script(*STEPS)

    await stage.turn("2+3?")

    assert await run_sql(database_url, ROWS) == [("I add them.", True), ("So it is five.", True)]
    assert [message.content for message in await stage.messages()] == ["2+3?", "", "5", "It is 5"]
    assert {message.reasoning for message in await read(stage, MessageQuery())} == {None}
    asked = await read(stage, MessageQuery(reasoning="shown"))
    assert [message.reasoning for message in asked] == [
        None,
        Reasoning("I add them."),
        None,
        Reasoning("So it is five."),
    ]


async def test_it_adds_nothing_to_the_count_of_its_message(stage: Stage) -> None:
    stage.model.script(Say("Yes", thinks="On and on. " * 50), Say("Yes"))
    await stage.turn("one")
    await stage.turn("two")

    first, second = (message for message in await stage.messages() if message.content == "Yes")
    assert first.token_count == second.token_count


@pytest.mark.parametrize(
    ("use", "rows"),
    [
        (ReasoningUse.STORE, [("I add them.", False), ("So it is five.", False)]),
        (ReasoningUse.DROP, []),
    ],
)
async def test_an_agent_may_keep_it_from_users(
    database: Database, database_url: str, use: ReasoningUse, rows: list[tuple[object, ...]]
) -> None:
    stage = await open_stage(database, agent=replace(AGENT, reasoning=use))
    stage.model.script(*STEPS)

    run = await stage.turn("2+3?")

    assert thought(list(await stage.events(run))) == ""
    assert await run_sql(database_url, ROWS) == rows
    assert {message.reasoning for message in await read(stage, MessageQuery(reasoning="shown"))} == {None}
    for_operators = [
        message.reasoning.text for message in await read(stage, MessageQuery(reasoning="all")) if message.reasoning
    ]
    assert for_operators == [text for text, _ in rows]


async def test_a_failed_try_takes_back_reasoning_that_readers_were_shown(stage: Stage, database_url: str) -> None:
    stage.model.script(Fail(ModelUnavailable("down"), thinks="Wrong"), Say("Yes", thinks="Right"))

    run = await stage.turn("hi")

    shown = [event.event for event in await stage.events(run)]
    kept = [event for event in shown if isinstance(event, ReasoningDelta | AnswerReset | MessageDelta)]
    wrong, reset, right, yes = kept
    assert isinstance(wrong, ReasoningDelta)
    assert run.message_id is not None
    assert wrong == ReasoningDelta(wrong.message_id, "Wrong")
    assert [reset, right, yes] == [
        AnswerReset(1),
        ReasoningDelta(run.message_id, "Right"),
        MessageDelta(run.message_id, "Yes"),
    ]
    assert wrong.message_id != run.message_id
    assert await run_sql(database_url, ROWS) == [("Right", True)]


async def test_a_failed_try_that_showed_nothing_takes_nothing_back(database: Database) -> None:
    stage = await open_stage(database, agent=replace(AGENT, reasoning=ReasoningUse.STORE))
    stage.model.script(Fail(ModelUnavailable("down"), thinks="Wrong"), Say("Yes"))

    run = await stage.turn("hi")

    assert not [event for event in await stage.events(run) if isinstance(event.event, AnswerReset)]


async def test_a_long_text_is_cut_with_a_mark(stage: Stage, database_url: str) -> None:
    stage.model.script(Say("Yes", thinks="x" * (MAX_REASONING_CHARACTERS + 1)))

    await stage.turn("hi")

    ((text, _),) = await run_sql(database_url, ROWS)
    assert text == "x" * MAX_REASONING_CHARACTERS + CUT_MARK


@pytest.mark.parametrize(("thinks", "says"), [("on " * 400, ""), ("on " * 200, "and " * 200)])
async def test_reasoning_without_end_is_stopped_like_an_answer_without_end(
    database: Database, thinks: str, says: str
) -> None:
    stage = await open_stage(
        database, agent=with_context(), config=TurnConfig(max_answer_bytes=1000, token_counter="chars")
    )
    stage.model.script(Say(says, thinks=thinks))

    run = await stage.turn("hi")

    assert run.error is not None
    assert "the 1000 bytes an answer may have, its reasoning included" in run.error.detail


async def test_a_turn_that_is_cancelled_while_the_model_thinks_has_no_answer(stage: Stage) -> None:
    stage.model.script(Hang(thinks="Let me see"))
    run = await stage.submit("hi")
    playing = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))

    async def shown() -> bool:
        return bool(thought(list(await stage.events(run))))

    await until_found(shown)
    await stage.database.runs.request_cancel(stage.owner_id, run.id)
    await playing

    ended: Run = await stage.database.runs.get_run(stage.owner_id, run.id)
    assert ended.status is RunStatus.CANCELLED
    assert [message.content for message in await stage.messages()] == ["hi"]


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
