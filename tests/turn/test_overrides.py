"""Turns whose request overrides the agent: another model, parameters, instructions, and answers in a format."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.scripted_model import Call, Fail, Say, ScriptedModel, ScriptedModels, Step
from fakes.stage import AGENT, Stage, make_tool_box, open_stage
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.agents.registry import AgentDefaults, FolderWatch, load_agents
from throughline.assembly.reread_agents import AgentRereading, one_line
from throughline.context.calibration import Calibration
from throughline.db.database import Database
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import DatabaseUnavailable, ModelUnavailable, NotFound
from throughline.domain.events import AnswerReset, MessageCompleted, MessageDelta, RunEnded
from throughline.domain.message import Message, Source, ToolCall
from throughline.domain.prompt import (
    ANY_TOOL,
    ModelParameters,
    ModelRequest,
    OverrideField,
    Overrides,
    ResponseFormat,
    Usage,
)
from throughline.domain.run import Run, RunInput, RunStatus, Submission
from throughline.llm.counters import make_counter
from throughline.llm.registry import ModelRegistry
from throughline.ports.models import FormatSupport
from throughline.tools.recall import make_recall_tools
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


DEFAULTS = AgentDefaults(usage_threshold=0.8, summary_model="")
ONE = "name: one\nsystem_prompt: first\n"
Logs = Sequence[Mapping[str, Any]]  # Any: fields of log lines
LINES = ("agent files refused", "agent files read again", "agent files not checked")


class ForgetfulDatabase:
    """Calibrations in a database that is away."""

    async def load(self, key: str) -> Calibration | None:
        raise DatabaseUnavailable(f"no {key}")

    async def save(self, key: str, calibration: Calibration) -> None:
        raise AssertionError((key, calibration))


async def open_rereading(
    database: Database, folder: Path, needed: Mapping[str, str] = MappingProxyType({})
) -> AgentRereading:
    """Return the re-reading of a folder with the agent `one`, with real models."""
    (folder / "one.yaml").write_text(ONE)
    watch = FolderWatch(folder)
    tools = make_tool_box(further=make_recall_tools(database.history, make_counter("chars").count))
    stage = await open_stage(database, tools=tools)
    dependencies = replace(stage.dependencies, models=ModelRegistry(), agents=load_agents([folder], DEFAULTS))
    return AgentRereading(watch, lambda: load_agents([folder], DEFAULTS), DEFAULTS, dependencies, needed)


async def polled(rereading: AgentRereading) -> Logs:
    """Poll until what was changed is settled; return the log lines on agent files."""
    with capture_logs() as logs:
        for _ in range(3):
            await rereading.poll()
    return [line for line in logs if line["event"] in LINES]


async def test_a_changed_an_added_and_a_removed_file_take_effect(database: Database, tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").write_text("name: gone\n")
    rereading = await open_rereading(database, tmp_path)
    agents = rereading.dependencies.agents
    kept = agents.get("one")

    (tmp_path / "one.yaml").write_text("name: one\nsystem_prompt: second\n")
    (tmp_path / "two.yaml").write_text("name: two\n")
    (tmp_path / "gone.yaml").unlink()
    logs = await polled(rereading)

    assert (agents.get("one").system_prompt, kept.system_prompt) == ("second", "first")
    assert agents.get("two").name == "two"
    with pytest.raises(NotFound, match=r"no agent 'gone'.*assistant, one,"):
        agents.get("gone")
    assert [(line["event"], line["changed"], line["removed"]) for line in logs] == [
        ("agent files read again", ["one", "two"], ["gone"])
    ]


async def test_a_file_that_replaced_a_shipped_agent_gives_it_back(database: Database, tmp_path: Path) -> None:
    (tmp_path / "assistant.yaml").write_text("name: assistant\nsystem_prompt: ours\n")
    rereading = await open_rereading(database, tmp_path)
    assert rereading.dependencies.agents.get("assistant").system_prompt == "ours"

    (tmp_path / "assistant.yaml").unlink()
    await polled(rereading)

    assert rereading.dependencies.agents.get("assistant").system_prompt.startswith("You are a helpful assistant")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: one\nmax_tool_rounds: 1000\n", r".*/one\.yaml: max_tool_rounds: 1000 must be at most 100"),
        ("name: one\nmodel: nobody:x\n", "agent one: model: model 'nobody:x' names no known provider"),
        ("name: one\ntools: [nosuch]\n", "agent one: tools: There is no tool named 'nosuch'; allowed: .*"),
        (
            "name: one\ncontext: {pre_compact: 'nosuch:hook'}\n",
            "agent one: pre_compact 'nosuch:hook': there is no such hook",
        ),
        ("name: one\ncontext: {token_counter: 'nosuch:count'}\n", "agent one: token counter 'nosuch:count'.*no module"),
        (f"name: one\nsystem_prompt: {'word ' * 2000}\ncontext: {{window: 2000}}\n", "agent one: .*2,?000"),
        ("name: assistant\n", ""),
    ],
    ids=["field", "model", "tool", "hook", "counter", "window", "valid-but-another-is-not"],
)
async def test_an_invalid_file_changes_nothing_and_is_told_once(
    database: Database, tmp_path: Path, text: str, told: str
) -> None:
    rereading = await open_rereading(database, tmp_path)
    before = rereading.dependencies.agents.all()
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "two.yaml").write_text("name: two\n" if told else "name: two\nnosuch: 1\n")

    logs = await polled(rereading)

    assert rereading.dependencies.agents.all() == before
    assert [line["event"] for line in logs] == ["agent files refused"]
    (line,) = logs
    assert "\n" not in line["error"]
    assert line["hint"] == "the agents stay as they were"
    with capture_logs() as again:
        await rereading.poll()
    assert again == []
    assert re.match(told or r".*/two\.yaml: nosuch: no such field; allowed: ", line["error"]), line["error"]


async def test_operators_read_from_which_file_an_agent_is_and_what_is_wrong_with_files(
    database: Database, tmp_path: Path
) -> None:
    rereading = await open_rereading(database, tmp_path)
    agents = rereading.dependencies.agents
    (tmp_path / "two.yaml").write_text("name: two\n")
    await polled(rereading)
    first = {one.agent: one for one in agents.describe_files().agents}

    (tmp_path / "one.yaml").write_text("name: one\nmax_tool_rounds: 1000\nnosuch: 1\n")
    (tmp_path / "copy.yaml").write_text("name: two\n")
    await polled(rereading)
    refused = agents.describe_files()
    (tmp_path / "copy.yaml").unlink()
    (tmp_path / "one.yaml").write_text("name: one\nsystem_prompt: second\n")
    await polled(rereading)
    mended = agents.describe_files()

    assert (first["one"].file, first["two"].file, first["assistant"].file) == ("one.yaml", "two.yaml", None)
    assert first["two"].read_at is not None
    assert refused.agents == tuple(first.values())
    assert refused.refused is not None
    told = {one.file: one.detail for one in refused.refused.errors}
    assert told.keys() == {"one.yaml", "two.yaml"}
    assert told["one.yaml"].startswith("max_tool_rounds: 1000 must be at most 100; nosuch: no such field")
    assert told["two.yaml"] == "name: 'two' is the name of copy.yaml too; choose another"
    assert str(tmp_path) not in str(refused)
    assert mended.refused is None
    assert next(one for one in mended.agents if one.agent == "two") == first["two"]


async def test_an_error_that_is_found_after_reading_names_the_agent(database: Database, tmp_path: Path) -> None:
    rereading = await open_rereading(database, tmp_path)
    (tmp_path / "one.yaml").write_text("name: one\ntools: [nosuch]\n")
    await polled(rereading)

    refused = rereading.dependencies.agents.describe_files().refused
    assert refused is not None
    assert [(one.file, one.detail[:19]) for one in refused.errors] == [(None, "agent one: tools: T")]


async def test_a_folder_that_is_gone_is_told_without_its_path(database: Database, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    rereading = await open_rereading(database, folder)
    folder.rename(tmp_path / "elsewhere")
    await polled(rereading)

    refused = rereading.dependencies.agents.describe_files().refused
    assert refused is not None
    assert refused.errors[0].detail.startswith("AGENTS_DIR: the folder cannot be read")


async def test_a_mended_file_is_told_even_if_the_agents_are_those_of_before(database: Database, tmp_path: Path) -> None:
    rereading = await open_rereading(database, tmp_path)
    (tmp_path / "one.yaml").write_text("name: [")
    assert [line["event"] for line in await polled(rereading)] == ["agent files refused"]

    (tmp_path / "one.yaml").write_text(ONE)

    assert [line["event"] for line in await polled(rereading)] == ["agent files read again"]
    (tmp_path / "one.yaml").touch()
    assert await polled(rereading) == []


async def test_a_file_without_the_agent_of_slack_is_refused_as_at_start(database: Database, tmp_path: Path) -> None:
    rereading = await open_rereading(database, tmp_path, {"SLACK_AGENT": "one"})
    (tmp_path / "one.yaml").unlink()

    (line,) = await polled(rereading)

    assert line["error"].startswith("SLACK_AGENT: There is no agent 'one'. Known agents: assistant, ")
    assert rereading.dependencies.agents.get("one").name == "one"


async def test_files_that_the_database_kept_from_being_checked_are_checked_later(
    database: Database, tmp_path: Path
) -> None:
    rereading = await open_rereading(database, tmp_path)
    present, agents = rereading.dependencies, rereading.dependencies.agents
    (tmp_path / "one.yaml").write_text("name: one\nsystem_prompt: second\n")
    rereading.dependencies = replace(present, calibrations=ForgetfulDatabase())
    away = await polled(rereading)
    assert [line["event"] for line in away] == ["agent files not checked"]
    assert agents.get("one").system_prompt == "first"

    rereading.dependencies = present
    logs = await polled(rereading)

    assert [line["event"] for line in logs] == ["agent files read again"]
    assert agents.get("one").system_prompt == "second"


async def test_a_running_turn_keeps_the_agent_it_began_with(database: Database) -> None:
    first = replace(AGENT, system_prompt="first")
    stage = await open_stage(database, agent=first)
    steps: list[Step] = [Call((ToolCall("1", "calculator", '{"expression": "1+1"}'),)), Say("two"), Say("again")]

    def change_and_answer(_request: ModelRequest) -> Step:
        stage.dependencies.agents.replace_all([replace(first, system_prompt="second", max_tool_rounds=0)])
        return steps.pop(0)

    stage.model.by_request = change_and_answer

    statuses = [(await stage.turn(text)).status for text in ("what is 1+1?", "and now?")]

    assert statuses == [RunStatus.SUCCEEDED] * 2
    assert [request.prompt.system for request in stage.model.requests] == ["first", "first", "second"]
    assert [request.may_call_tools for request in stage.model.requests] == [True, True, False]


def test_an_error_of_several_files_is_told_in_one_line() -> None:
    detail = "/a/x.yaml:\n  model: 5 must be text\n  tools: 3 must be a list\n/a/y.yaml: the file is empty"

    assert one_line(detail) == "/a/x.yaml: model: 5 must be text; tools: 3 must be a list; /a/y.yaml: the file is empty"
