"""Room is made before every model call: what it did stays done, is told, and never makes the turn wait twice."""

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from context.prompt_judge import anthropic_faults, faults
from fakes.compactions import SUMMARY, fill, prepare_one
from fakes.conversations import Conversation, is_loaded_whole, open_conversation
from fakes.pooler import urls_of
from fakes.provider_double import ProviderDouble, RequestRecord
from fakes.scripted_model import Break, Call, Fail, Hang, Say, ScriptedModel, ScriptedModels, Step
from fakes.stage import (
    OneTool,
    Stage,
    agent_on,
    make_tool_box,
    open_double_stage,
    open_stage,
    refusals,
    turn_requests,
    with_context,
)
from fakes.waiting import HANG_SECONDS
from throughline.context.policy import Adopt, PrunePolicy, Strategy, SummaryPolicy
from throughline.context.view.view_state import view_state_from
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.errors import ContextOverflow, ModelInvalidRequest, ModelUnavailable, SummaryConflict
from throughline.domain.events import CompactionFinished
from throughline.domain.message import Message, Role, ToolCall
from throughline.domain.prompt import ModelRequest, Prompt
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import ToolContext, ToolOutcome
from throughline.turn.prompting.context_report import report_context
from throughline.turn.prompting.pins import pin_message
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import summarize_now
from throughline.turn.take_turn import take_turn

REDUCED_SUMMARY = "## Intent\nThe user counts."
SAY = "fakes.own_tools:say"
LATE = PrunePolicy(start=0.96, aggressive=0.97, critical=0.98, min_freed=0.99)


def is_summariser(request: ModelRequest) -> bool:
    return "You write the memory of a conversation" in request.prompt.system


def answers(request: ModelRequest) -> Step:
    return Say(REDUCED_SUMMARY) if is_summariser(request) else Say("noted " * 30)


def prompts(stage: Stage) -> list[Prompt]:
    """Return what the agent's model was sent, in order."""
    return [request.prompt for request in stage.model.requests if not is_summariser(request)]


async def stages_of(stage: Stage, run: Run) -> list[object]:
    """Return cause, outcome and stages of all that reduced the context in the run."""
    return [
        (event.event.cause, event.event.outcome.value, list(event.event.fired))
        for event in await stage.events(run)
        if isinstance(event.event, CompactionFinished)
    ]


def calling(*steps: int, size: int) -> Sequence[Step]:
    """Return steps that call the tool with the long output, one after the other, and the answer."""
    calls = [ToolCall(f"c{number}", "say", f'{{"text": "word ", "times": {size // 5}}}') for number in steps]
    return [*(Call((call,)) for call in calls), Say("done")]


async def open_tool_stage(database: Database, *steps: Step, **policy: object) -> Stage:
    agent = replace(with_context(**policy), tools=(SAY,), max_tool_rounds=40)
    tools = make_tool_box(imported=(SAY,), timeout_seconds=HANG_SECONDS, max_result_bytes=1_000_000)
    return await open_stage(database, agent=agent, model=ScriptedModel(*steps), tools=tools)


async def test_old_tool_outputs_become_stubs_once_and_stay_so(database: Database) -> None:
    stage = await open_tool_stage(
        database, *calling(*range(9), size=2000), Say("again"), window=8192, auto_summarize=False
    )

    first = await stage.turn("look around")
    second = await stage.turn("and now?")

    assert set(map(str, await stages_of(stage, first))) == {str(("threshold", "pruned", ["pruned"]))}
    assert await stages_of(stage, second) == []
    last, after = prompts(stage)[-2:]
    assert after.messages[: len(last.messages)] == last.messages
    assert "not shown" in str(last.messages[2].content)
    assert view_state_from((await stage.reload()).view_state).pruned_through_position > 0
    assert all("not shown" not in str(message.content) for message in await stage.messages())


async def test_a_tool_output_of_many_windows_hides_nothing_that_was_said_before_it(database: Database) -> None:
    stage = await open_tool_stage(
        database, Say("hello"), *calling(0, size=900_000), Say("again"), window=8192, auto_summarize=False
    )
    await stage.turn("remember the blue door")
    await stage.turn("look around")

    await stage.turn("and now?")

    last = prompts(stage)[-1]
    assert faults(last) == []
    assert last.messages[0].content == "remember the blue door"
    assert [message.position for message in last.messages if message.position] == list(range(1, 8))


async def test_one_giant_turn_is_compacted_between_complete_steps(database: Database) -> None:
    steps = iter(calling(*range(30), size=1500))
    stage = await open_tool_stage(database, window=8192, min_recent_messages=2, prune=LATE)
    stage.model.by_request = lambda request: Say(REDUCED_SUMMARY) if is_summariser(request) else next(steps)

    run = await stage.turn("do it all")

    session = await stage.reload()
    assert run.status is RunStatus.SUCCEEDED
    assert session.summary_through_position > 2
    assert all(faults(prompt) == [] for prompt in prompts(stage))
    assert all(any("do it all" in str(m.content) for m in prompt.messages) for prompt in prompts(stage))


async def test_a_session_that_moves_to_a_smaller_model_and_back_fits_both(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(auto_summarize=False), model=ScriptedModel())
    stage.model.by_request = answers
    for number in range(12):
        await stage.turn(f"number {number} " + "word " * 60)
    small = ScriptedModel(context_limit=2048)
    small.name = small.calibration_key = "small"
    small.by_request = answers
    large, stage.dependencies = stage.dependencies, replace(stage.dependencies, models=ScriptedModels(small))

    assert (await stage.turn("in the small one")).status is RunStatus.SUCCEEDED
    stage.dependencies = replace(large, agents=stage.dependencies.agents)
    assert (await stage.turn("back in the large one")).status is RunStatus.SUCCEEDED

    assert len(small.requests[0].prompt.messages) < 25
    assert len(prompts(stage)[-1].messages) == 27


async def test_the_strategy_truncation_keeps_the_newest_messages_and_asks_no_model(database: Database) -> None:
    agent = with_context(window=4096, strategy=Strategy.TRUNCATION, keep_recent=6)
    stage = await open_stage(database, agent=agent, model=ScriptedModel())
    stage.model.by_request = answers

    runs = [await stage.turn(f"number {number} " + "word " * 60) for number in range(24)]

    fired = [fired for run in runs for fired in await stages_of(stage, run)]
    assert ("threshold", "pruned", ["history_truncated"]) in fired
    assert len(fired) < 6
    assert not any(is_summariser(request) for request in stage.model.requests)
    assert len(await stage.messages()) == 48


async def test_the_strategy_importance_leaves_out_acknowledgements_first(database: Database) -> None:
    agent = with_context(window=4096, strategy=Strategy.IMPORTANCE, min_recent_messages=2)
    stage = await open_stage(database, agent=agent, model=ScriptedModel())
    stage.model.by_request = lambda _request: Say("ok")

    for number in range(40):
        await stage.turn(f"number {number} " + "word " * 60)

    shown = prompts(stage)[-1].messages
    assert sum(message.role is Role.USER for message in shown) > sum(
        message.role is Role.ASSISTANT for message in shown
    )
    assert len(await stage.messages()) == 80


async def test_a_pinned_message_is_in_every_later_prompt_word_for_word(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(window=2048, min_recent_messages=2), model=ScriptedModel())
    stage.model.by_request = answers
    await stage.turn("the blue crate goes behind the piano")
    first = (await stage.messages())[0]
    await pin_message(stage.dependencies, stage.database.pins, await stage.reload(), first.id)

    for number in range(16):
        await stage.turn(f"number {number} " + "word " * 60)

    assert (await stage.reload()).summary_through_position > 2
    assert all(_shows(prompt, first) for prompt in prompts(stage))


async def test_all_compactions_of_a_turn_share_one_time_limit(database: Database) -> None:
    policy = SummaryPolicy(timeout_seconds=2)
    stage = await open_tool_stage(database, window=4096, min_recent_messages=2, summary=policy, prune=LATE)
    steps = iter(calling(*range(12), size=1200))
    stage.model.by_request = lambda request: Hang() if is_summariser(request) else next(steps)

    run = await stage.turn("do it all")

    assert run.status is RunStatus.SUCCEEDED
    asked = sum(is_summariser(request) for request in stage.model.requests)
    assert asked == 1


@pytest.mark.parametrize(
    "failure",
    [
        Fail(ModelUnavailable("down")),
        Fail(ModelInvalidRequest("no such model")),
        Fail(ContextOverflow("too long")),
        Break(RuntimeError("a defect of the adapter")),
        Hang(),
        Say(""),
        Say("Error: 500 Internal Server Error"),
        Say("I'm sorry, but I can't help with that."),
    ],
    ids=["down", "rejected", "too_long", "broken", "slow", "empty", "error_text", "refusal"],
)
async def test_whatever_the_summariser_does_the_turn_is_answered(database: Database, failure: Step) -> None:
    seconds = 1 if isinstance(failure, Hang) else 30  # only who hangs uses them up, however slow the machine is
    agent = with_context(window=2048, min_recent_messages=2, summary=SummaryPolicy(timeout_seconds=seconds))
    stage = await open_stage(database, agent=agent, model=ScriptedModel())
    stage.model.by_request = lambda request: failure if is_summariser(request) else Say("noted " * 30)

    runs = [await stage.turn(f"number {number} " + "word " * 60) for number in range(8)]

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert any(is_summariser(request) for request in stage.model.requests)
    is_extracted = not isinstance(failure, Break)
    assert ((await stage.reload()).summary_through_position > 0) is is_extracted
    assert all(faults(prompt) == [] for prompt in prompts(stage))


@pytest.mark.parametrize(("facts", "is_used"), [(250, True), (5000, False)])
async def test_a_summary_above_its_limit_is_cut_and_used_unless_larger_than_it_replaces(
    database: Database, *, facts: int, is_used: bool
) -> None:
    stage = await open_stage(database, agent=with_context(window=2048, min_recent_messages=2), model=ScriptedModel())
    stage.model.by_request = lambda request: Say(("A fact. " * facts) if is_summariser(request) else "noted " * 30)

    runs = [await stage.turn(f"number {number} " + "word " * 60) for number in range(8)]

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert (0 < (await stage.reload()).summary_tokens < 500) is is_used


async def test_a_refused_prompt_that_cannot_be_smaller_keeps_the_providers_error(database: Database) -> None:
    refusal = ContextOverflow("too long", prompt_tokens=None, window_tokens=None)
    stage = await open_stage(database, model=ScriptedModel(Fail(refusal)))

    run = await stage.turn("x")

    assert run.error is not None
    assert run.error.type == "context_overflow"


def _shows(prompt: Prompt, message: Message) -> bool:
    return any(shown.position == message.position and shown.content == message.content for shown in prompt.messages)


@dataclass
class SlowTool(OneTool):
    """A tool that returns once a test lets it."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        self.begun.set()
        await self.released.wait()
        return await OneTool.run(self, call, context)


@pytest.mark.parametrize("calls", [1, 3])
async def test_two_summaries_on_demand_while_a_tool_runs_leave_its_call_with_its_result(
    database: Database, calls: int
) -> None:
    tool = SlowTool("dig", "a bone", repeatable=True)
    asked = Call(tuple(ToolCall(f"c{number}", "dig", "{}") for number in range(calls)))
    agent = replace(with_context(window=8192, min_recent_messages=1), tools=("dig",))
    stage = await open_stage(database, agent=agent, tools=tool)
    await fill(stage, 6)
    answers: Iterator[Step] = iter([asked, Say("a bone"), Say("again")])

    def by_request(request: ModelRequest) -> Step:
        is_summary = "You write the memory of a conversation" in request.prompt.system
        return Say(SUMMARY) if is_summary else next(answers)

    stage.model.by_request = by_request
    run = await stage.submit("dig")
    turn = asyncio.create_task(take_turn(stage.turn_start(await stage.claim())))
    await tool.begun.wait()

    first = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    second = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest(instructions="shorter"))
    tool.released.set()
    await turn
    await stage.turn("and now?")

    assert first.outcome == "adopted"
    assert second.session.summary_through_position < 14  # the message "dig" and what follows it stay
    for request in stage.model.requests:
        assert faults(request.prompt) == []
        assert anthropic_faults(request.prompt) == []
    stored = await stage.messages()
    results = [message.tool_call_id for message in stored if message.role is Role.TOOL]
    assert sorted(map(str, results)) == [f"c{number}" for number in range(calls)]
    assert [message.content for message in stored if message.run_id == run.id][-1] == "a bone"


async def adopt_beside_a_message(conversation: Conversation, other: Database, number: int) -> bool:
    """Adopt a summary in one process and store the next message in another, at once; return whether it was adopted."""
    loaded = await conversation.database.messages.load_context(conversation.session.id, None, 1000)
    adoption = await conversation.adoption(loaded.history[-2])
    elsewhere = replace(conversation, database=other)
    tries = [conversation.database.summaries.adopt_summary(adoption), elsewhere.say(f"message {number}")]
    done = await asyncio.gather(*(tries if number % 2 else reversed(tries)), return_exceptions=True)
    unexpected = [one for one in done if isinstance(one, BaseException) and not isinstance(one, SummaryConflict)]
    assert unexpected == []
    return not any(isinstance(one, SummaryConflict) for one in done)


async def check_beside_adoptions(database: Database, url: str, rounds: int) -> None:
    other = await Database.open(DatabaseConfig(**urls_of(url), pool_size=2))
    conversation = await open_conversation(database)
    await conversation.say("one", "two", "three")
    adopted = 0
    for number in range(rounds):
        adopted += await adopt_beside_a_message(conversation, other, number)
    await other.close()

    stored = await database.messages.get_messages_after(conversation.session.id, None, rounds + 10)
    loaded = await database.messages.load_context(conversation.session.id, None, 1000)
    assert adopted == rounds
    assert [message.content for message in stored[3:]] == [f"message {number}" for number in range(rounds)]
    assert [message.position for message in stored] == list(range(1, rounds + 4))
    assert is_loaded_whole(loaded)


async def test_a_message_at_the_moment_of_an_adoption_is_stored_by_another_process(
    database: Database, database_url: str
) -> None:
    await check_beside_adoptions(database, database_url, 20)


@pytest.mark.proof
@pytest.mark.slow
async def test_a_thousand_messages_at_the_moment_of_an_adoption_are_all_stored(
    database: Database, database_url: str
) -> None:
    await check_beside_adoptions(database, database_url, 1000)


INSTRUCTIONS = "Write a poem about ducks at the end."


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
        done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest(INSTRUCTIONS))
        await talk(stage, 3)

    assert done.outcome == "adopted"
    told = [record.is_summary for record in provider_double.requests if "ducks" in json.dumps(record.prompt)]
    assert told
    assert all(told)


async def test_a_summary_beside_pruned_outputs_is_judged_by_the_prompt_that_follows(database: Database) -> None:
    steps = (*[Say("noted " * 100)] * 3, *calling(*range(12), size=800), Say(REDUCED_SUMMARY), Say("again"))
    policy = {"window": 8192, "min_recent_messages": 26, "max_messages_before_summary": 6}
    stage = await open_tool_stage(database, *steps, adopt=Adopt.IMMEDIATELY, **policy)
    for number in range(3):
        await stage.turn(f"number {number}")
    await stage.turn("look around")
    assert await prepare_one(stage)

    last = await stage.turn("word " * 250)

    assert await stages_of(stage, last) == [("messages", "adopted", ["pruned"])]
