"""What a turn learns of how a provider counts, and from which calls it learns nothing."""

from dataclasses import replace

import pytest

from context.strategies import Said, conversation_input
from fakes.scripted_model import Call, Fail, Say, ScriptedModel, Step
from fakes.stage import LEARNED_KEY, Stage, open_stage
from throughline.context.calibration import Calibration
from throughline.context.fit_prompt import fit_prompt
from throughline.db.database import Database
from throughline.domain.errors import ContextOverflow
from throughline.domain.message import Content, ImageBlock, Role, TextBlock, ToolCall
from throughline.domain.prompt import ModelRequest, Prompt, Usage
from throughline.domain.run import RunStatus
from throughline.llm.counters import make_counter
from throughline.turn.prompting.calibrate import learn_from_overflow
from throughline.turn.prompting.context_report import report_context
from throughline.turn.prompting.planning import at_rest
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
