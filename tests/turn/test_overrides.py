"""Turns whose request overrides the agent: another model, parameters, instructions, and answers in a format."""

from dataclasses import replace

import pytest

from fakes.scripted_model import Call, Fail, Say, ScriptedModel, ScriptedModels
from fakes.stage import AGENT, Stage, open_stage
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.db.database import Database
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import ModelUnavailable
from throughline.domain.events import AnswerReset, MessageCompleted, MessageDelta, RunEnded
from throughline.domain.message import Message, Source, ToolCall
from throughline.domain.prompt import (
    ANY_TOOL,
    ModelParameters,
    OverrideField,
    Overrides,
    ResponseFormat,
    Usage,
)
from throughline.domain.run import Run, RunInput, RunStatus, Submission
from throughline.ports.models import FormatSupport
from throughline.turn.call_model import TRIES_BEFORE_FALLBACK
from throughline.turn.take_turn import take_turn

OPEN = replace(
    AGENT,
    parameters=ModelParameters(temperature=0.2, seed=7),
    overrides=frozenset(OverrideField),
    override_models=(OtherModel("big", window=16_000, parameters=ModelParameters(top_p=0.5)),),
    fallback_models=(OtherModel("spare"),),
)
SCHEMA: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
IN_FORMAT = Overrides(response_format=ResponseFormat(SCHEMA))


async def open_with_models(
    database: Database, agent: AgentDefinition = OPEN, support: FormatSupport = FormatSupport.SCHEMA
) -> tuple[Stage, ScriptedModel]:
    """Return a stage whose agent has the models `big` and `spare` besides its own; the second is `big`."""
    stage = await open_stage(database, agent=agent)
    big, spare = ScriptedModel(context_limit=100_000), ScriptedModel()
    stage.model.format_support = support
    stage.dependencies = replace(stage.dependencies, models=ScriptedModels(stage.model, big=big, spare=spare))
    return stage, big


async def submit(stage: Stage, overrides: Overrides, text: str = "hi") -> Run:
    given = RunInput(text, overrides=overrides)
    submission = Submission(stage.owner_id, stage.session.id, given, Source.API, fingerprint=text)
    return (await stage.database.runs.submit(submission, None)).run


async def turn(stage: Stage, overrides: Overrides, text: str = "hi") -> Run:
    run = await submit(stage, overrides, text)
    await take_turn(stage.turn_start(await stage.claim()))
    return await stage.database.runs.get_run(stage.owner_id, run.id)


async def answer(stage: Stage) -> Message:
    return (await stage.messages())[-1]


async def test_a_request_changes_its_own_turn_only(database: Database) -> None:
    stage, big = await open_with_models(database)
    big.script(Say("from the big one"))
    stage.model.script(Say("as always"))

    await turn(stage, Overrides(model="big", temperature=1.5, instructions="Speak Latin."))
    await turn(stage, Overrides())

    assert [message.content for message in await stage.messages()][1::2] == ["from the big one", "as always"]
    changed, plain = big.requests[0], stage.model.requests[0]
    assert changed.prompt.system == "You are a helpful assistant.\n\nSpeak Latin."
    assert changed.parameters == ModelParameters(top_p=0.5, temperature=1.5)
    assert (plain.prompt.system, plain.parameters) == ("You are a helpful assistant.", OPEN.parameters)


async def test_the_window_is_that_of_the_named_model(database: Database) -> None:
    stage, big = await open_with_models(database, agent=replace(OPEN, context=replace(OPEN.context, window=2_000)))
    big.script(Say("ok"), Say("ok"))

    await turn(stage, Overrides(model="big"), "word " * 2_000)
    run = await turn(stage, Overrides(model="big"), "and now?")

    assert run.context is not None
    assert run.context["context_window"] == 16_000
    assert "word " * 2_000 in [message.content for message in big.requests[1].prompt.messages]


async def test_a_fallback_model_keeps_the_other_overrides(database: Database) -> None:
    stage, _ = await open_with_models(database)
    stage.model.script(*[Fail(ModelUnavailable("down"))] * TRIES_BEFORE_FALLBACK)
    spare = stage.dependencies.models.get("spare")
    assert isinstance(spare, ScriptedModel)
    spare.script(Say("no JSON"), Say('{"n": 1}'))
    stage.model.script(*[Fail(ModelUnavailable("down"))] * TRIES_BEFORE_FALLBACK)

    overrides = replace(IN_FORMAT, temperature=0.0, instructions="Count.")
    run = await turn(stage, overrides)

    assert run.status is RunStatus.SUCCEEDED
    assert [request.parameters.temperature for request in spare.requests] == [0.0, 0.0]
    assert all("Count." in request.prompt.system for request in spare.requests)
    assert "no JSON" in spare.requests[1].prompt.system


async def test_overrides_live_in_the_run_and_reach_the_process_that_takes_it(database: Database) -> None:
    stage, _ = await open_with_models(database)
    wanted = ResponseFormat({"type": "object"}, "reply", "What to say.", strict=False)
    given = Overrides("big", 0.0, "Be brief.", wanted, tool_choice=ANY_TOOL, allowed_tools=("now", "calculator"))

    run = await submit(stage, given)

    assert run.input.overrides == given
    assert (await stage.claim()).run.input.overrides == given


async def test_an_agent_that_allows_no_more_what_was_accepted_fails_the_run(database: Database) -> None:
    stage, _ = await open_with_models(database)
    await submit(stage, Overrides(model="big"))
    stage.dependencies.agents.replace_all([AGENT])

    await take_turn(stage.turn_start(await stage.claim()))

    (event,) = [event.event for event in await stage.events(await newest_run(stage)) if event.is_last]
    assert isinstance(event, RunEnded)
    assert event.run.error is not None
    assert event.run.error.type == "invalid_input"
    assert event.run.error.detail.startswith("The agent 'assistant' does not allow requests to override model")
    assert [message.content for message in await stage.messages()] == ["hi"]


async def newest_run(stage: Stage) -> Run:
    (message,) = await stage.messages()
    assert message.run_id is not None
    return await stage.database.runs.get_run(stage.owner_id, message.run_id)


async def test_an_answer_in_the_format_is_taken_as_it_is(database: Database) -> None:
    stage, _ = await open_with_models(database)
    stage.model.script(Say('{"n": 1}'))

    run = await turn(stage, IN_FORMAT)

    assert (run.status, (await answer(stage)).content) == (RunStatus.SUCCEEDED, '{"n": 1}')
    assert stage.model.requests[0].response_format == IN_FORMAT.response_format
    assert stage.model.requests[0].prompt.system == "You are a helpful assistant."
    assert not any(isinstance(event.event, AnswerReset) for event in await stage.events(run))


async def test_a_model_that_takes_no_schema_is_told_it_in_words(database: Database) -> None:
    stage, _ = await open_with_models(database, support=FormatSupport.INSTRUCTION)
    stage.model.script(Say('{"n": 1}'))

    await turn(stage, replace(IN_FORMAT, instructions="Count."))

    system = stage.model.requests[0].prompt.system
    assert system.startswith("You are a helpful assistant.\n\nCount.\n\nYour final answer must be JSON alone")
    assert '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}' in system


async def test_a_first_answer_that_does_not_fit_is_taken_back_and_asked_again(database: Database) -> None:
    stage, _ = await open_with_models(database)
    stage.model.script(Say('{"n": "one"}', usage=Usage(10, 1)), Say('{"n": 1}', usage=Usage(20, 2)))

    run = await turn(stage, IN_FORMAT)

    assert run.status is RunStatus.SUCCEEDED
    assert (run.usage.input_tokens, run.usage.output_tokens) == (30, 3)
    assert (await database.usage.spent_today(stage.owner_id, run.agent)).spent.tokens == 33
    assert [message.content for message in await stage.messages()] == ["hi", '{"n": 1}']
    system = stage.model.requests[1].prompt.system
    assert 'was not accepted, because of the JSON schema: $.n: "one" is not of type "integer"' in system
    assert "JSON schema:\n{" in system
    assert system.endswith('<rejected_answer>\n{"n": "one"}\n</rejected_answer>')
    told = [event.event for event in await stage.events(run)]
    last_reset = max(index for index, event in enumerate(told) if isinstance(event, AnswerReset))
    assert "".join(event.text for event in told[:last_reset] if isinstance(event, MessageDelta)) == '{"n": "one"}'
    assert "".join(event.text for event in told[last_reset:] if isinstance(event, MessageDelta)) == '{"n": 1}'


async def test_a_second_answer_that_does_not_fit_fails_the_run_and_is_kept(database: Database) -> None:
    stage, _ = await open_with_models(database)
    stage.model.script(Say("one"), Say("two"))

    run = await turn(stage, IN_FORMAT)

    assert run.error is not None
    assert (run.status, run.error.type) == (RunStatus.FAILED, "answer_not_in_format")
    assert "it is not JSON alone: Expecting value at character 0. Its last answer is kept." in run.error.detail
    kept = await answer(stage)
    assert (kept.content, kept.metadata, kept.id) == ("two", {"rejected": True}, run.message_id)
    told = [event.event for event in await stage.events(run)]
    assert isinstance(told[-2], MessageCompleted)
    assert isinstance(told[-1], RunEnded)
    assert told[-1].answer == kept  # readers who read the stored event get it, as those who were told of it
    assert [type(event).__name__ for event in told].count("AnswerReset") == 1


async def test_an_answer_that_was_cut_off_says_so(database: Database) -> None:
    stage, _ = await open_with_models(database)
    stage.model.script(Say('{"n": ', finish_reason="length"), Say('{"n": 1}'))

    await turn(stage, IN_FORMAT)

    assert "it was cut off at 512 tokens (context.response_reserve)" in stage.model.requests[1].prompt.system


async def test_only_the_final_answer_is_checked_not_steps_with_tools(database: Database) -> None:
    stage, _ = await open_with_models(database)
    call = Call((ToolCall("1", "calculator", '{"expression": "1+1"}'),), text="Let me see.")
    stage.model.script(call, Say("two"), replace(call, calls=(replace(call.calls[0], id="2"),)), Say("still two"))

    run = await turn(stage, IN_FORMAT)

    assert run.error is not None
    assert run.error.type == "answer_not_in_format"
    assert [message.content for message in await stage.messages()] == [
        "hi",
        "Let me see.",
        "2",
        "Let me see.",
        "2",
        "still two",
    ]
    assert all(request.response_format is not None for request in stage.model.requests)


async def test_the_next_turn_knows_nothing_of_a_correction(database: Database) -> None:
    stage, _ = await open_with_models(database)
    stage.model.script(Say("one"), Say('{"n": 1}'), Say("plain again"))

    await turn(stage, IN_FORMAT)
    await turn(stage, Overrides(), "more")

    assert stage.model.requests[2].prompt.system == "You are a helpful assistant."
    assert stage.model.requests[2].response_format is None


@pytest.mark.parametrize("text", ['{"n": 1}', "nothing of the kind"])
async def test_without_a_format_nothing_is_checked(database: Database, text: str) -> None:
    stage, _ = await open_with_models(database)
    stage.model.script(Say(text))

    assert (await turn(stage, Overrides(temperature=0.0))).status is RunStatus.SUCCEEDED
