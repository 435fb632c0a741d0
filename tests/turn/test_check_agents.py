"""The check at the start of the service: which agent, which field or setting, and what is wrong with it."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

import pytest
from structlog.testing import capture_logs

from fakes.scripted_model import Call, Fail, Say, ScriptedModel, ScriptedModels
from fakes.stage import AGENT, LEARNED_KEY, Stage, make_tool_box, open_stage, with_context
from fakes.waiting import ManualClock
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.agents.registry import AgentDefaults, AgentRegistry
from throughline.context.calibration import Calibration
from throughline.context.policy import ContextPolicy, SummaryPolicy
from throughline.db.database import Database
from throughline.domain.errors import (
    AgentInvalid,
    ModelAuthenticationFailed,
    ModelInvalidRequest,
    ModelUnavailable,
    SettingInvalid,
)
from throughline.domain.message import ToolCall
from throughline.domain.model_window import ModelCheck, ModelWindow, ToolUse, WindowOrigin
from throughline.domain.prompt import ModelEvent, ModelParameters, ModelRequest, OverrideField, Usage
from throughline.llm.counters import make_counter
from throughline.llm.registry import ModelRegistry
from throughline.ports.models import ChatModel
from throughline.turn.prompting.agent_windows import TOOL, agent_window, ask_windows, check_model, log_windows
from throughline.turn.prompting.check_agents import check_agents, check_names
from throughline.turn.prompting.ready_agent import assemble_agent

PLAIN = AgentDefinition("plain")
UNWRITTEN = AgentDefaults(usage_threshold=0.8, summary_model="")


@dataclass(frozen=True, slots=True)
class OnlyOffline:
    """Models of which only `offline` and those in `known` can be had."""

    known: tuple[str, ...] = ("",)

    def get(self, model: str, base_url: str | None = None, api_key_env: str | None = None) -> ChatModel:
        del api_key_env
        if model not in self.known:
            raise SettingInvalid(f"model {model!r} at {base_url} is unknown")
        return ModelRegistry().get("offline")


def with_summary_model(agent: AgentDefinition, model: str) -> AgentDefinition:
    return replace(agent, context=ContextPolicy(summary=SummaryPolicy(model=model, base_url="http://s")))


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (replace(PLAIN, model="a:b", base_url="http://m"), "agent plain: model: model 'a:b' at http://m is unknown"),
        (with_summary_model(PLAIN, "a:c"), "agent plain: summary.model: model 'a:c' at http://s is unknown"),
        (
            replace(PLAIN, override_models=(OtherModel("a:d"),)),
            "agent plain: override_models: a:d: model 'a:d' at None is unknown",
        ),
        (replace(PLAIN, tools=("nosuch",)), "agent plain: tools: There is no tool named 'nosuch'"),
        (replace(PLAIN, tools=("no_such_module:tool",)), "agent plain: tools: tool 'no_such_module:tool': there is no"),
    ],
)
def test_what_an_agent_names_in_vain_is_told_with_the_agent_and_the_field(agent: AgentDefinition, told: str) -> None:
    with pytest.raises(AgentInvalid) as refused:
        check_names([AgentDefinition("fine"), agent], UNWRITTEN, OnlyOffline(), make_tool_box((), 1, 1_000))

    assert refused.value.detail.startswith(told)


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (OnlyOffline(known=()), "DEFAULT_LLM: model '' at None is unknown"),
        (OnlyOffline(), "CONTEXT_SUMMARY_MODEL: model 'openai:small' at http://local is unknown"),
    ],
)
def test_a_model_of_the_settings_is_told_with_the_setting_and_no_agent(models: OnlyOffline, told: str) -> None:
    agents = [with_summary_model(PLAIN, "openai:small")]

    with pytest.raises(SettingInvalid) as refused:
        check_names(agents, AgentDefaults(0.8, "openai:small", "http://local"), models, make_tool_box((), 1, 1_000))

    assert refused.value.detail == told


@pytest.mark.parametrize("field", ["fallback_models", "override_models"])
def test_no_other_model_may_take_texts_from_an_own_server_to_the_provider(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    own = replace(AGENT, model="openai:mine", base_url="http://127.0.0.1:9/v1", tools=())
    leaves = with_others(own, field, OtherModel("openai:gpt-4o"))
    stays = with_others(own, field, OtherModel("openai:gpt-4o", "http://127.0.0.1:8/v1"))
    defaults = AgentDefaults(usage_threshold=0.8, summary_model="")
    tools = make_tool_box(timeout_seconds=1, max_result_bytes=1000)

    check_names([stays], defaults, ModelRegistry(), tools)
    with pytest.raises(AgentInvalid) as caught:
        check_names([leaves], defaults, ModelRegistry(), tools)

    assert f"{field}: openai:gpt-4o: has no base_url" in caught.value.detail


def with_others(agent: AgentDefinition, field: str, *others: OtherModel) -> AgentDefinition:
    """Return the agent with other models in one of the fields that have them."""
    if field == "override_models":
        return replace(agent, override_models=others)
    return replace(agent, fallback_models=others)


class Unseasoned(ScriptedModel):
    """A model whose provider takes no temperature."""

    def check_parameters(self, parameters: ModelParameters) -> None:
        if parameters.temperature is not None:
            raise SettingInvalid("takes no temperature")


@pytest.mark.parametrize("field", ["fallback_models", "override_models"])
def test_a_temperature_that_requests_may_set_must_be_taken_by_every_model(field: str) -> None:
    models = ScriptedModels(ScriptedModel(), strict=Unseasoned())
    tools = make_tool_box(timeout_seconds=1, max_result_bytes=1000)
    plain = with_others(PLAIN, field, OtherModel("strict"))

    check_names([plain], UNWRITTEN, models, tools)
    for agent, where in (
        (replace(plain, overrides=frozenset({OverrideField.TEMPERATURE})), f"{field}: strict"),
        (replace(PLAIN, model="strict", overrides=frozenset({OverrideField.TEMPERATURE})), "overrides"),
    ):
        with pytest.raises(AgentInvalid) as refused:
            check_names([agent], UNWRITTEN, models, tools)
        assert refused.value.detail == f"agent plain: {where}: takes no temperature"


async def test_the_prompt_must_fit_the_window_of_every_model_that_a_request_may_name(database: Database) -> None:
    agent = replace(AGENT, system_prompt="word " * 1_500, override_models=(OtherModel("tiny", window=1_024),))
    stage = await open_stage(database, agent=agent)

    with pytest.raises(AgentInvalid, match=r"^agent assistant: override_models: tiny: .*1,?024"):
        await check_agents(stage.dependencies, [agent])
    fitting = replace(agent, system_prompt="Be brief.")
    ready = await check_agents(stage.dependencies, [fitting])

    assert [(one.definition.model, one.budget.window_tokens) for one in ready] == [("", 8_192), ("tiny", 1_024)]


@dataclass
class NamedModel(ScriptedModel):
    """A scripted model with a name of its own."""

    def __init__(self, name: str, origin: WindowOrigin = WindowOrigin.TABLE) -> None:
        super().__init__()
        self.name = name
        self.window_origin = origin


async def test_each_model_is_asked_once_and_none_whose_window_is_in_the_file() -> None:
    models = {name: NamedModel(name) for name in ("shared", "summary", "written")}
    agents = [
        replace(AGENT, name="one", model="shared"),
        replace(AGENT, name="two", model="shared", context=replace(AGENT.context, summary=SummaryPolicy("summary"))),
        replace(with_context(window=32_000), name="three", model="written"),
    ]

    await ask_windows(agents, ScriptedModels(ScriptedModel(), **models))

    assert {name: model.times_asked for name, model in models.items()} == {"shared": 1, "summary": 1, "written": 0}


async def test_windows_are_logged_once_a_model_with_a_warning_for_the_unknown(database: Database) -> None:
    models = {"known": NamedModel("a-known"), "unknown": NamedModel("b-unknown", WindowOrigin.UNKNOWN)}
    agents = [
        replace(AGENT, name="one", model="known"),
        replace(AGENT, name="two", model="unknown"),
        replace(AGENT, name="three", model="unknown"),
        replace(with_context(window=32_000), name="four", model="unknown"),
    ]
    stage = await open_stage(database)
    stage.dependencies = replace(
        stage.dependencies, models=ScriptedModels(stage.model, **models), agents=AgentRegistry(agents)
    )

    ready = await check_agents(stage.dependencies, stage.dependencies.agents.all())
    with capture_logs() as logs:
        log_windows(ready)

    told = {tuple(log["agents"]): log for log in logs}
    assert told[("one",)]["event"] == "context window found"
    assert (told[("four",)]["window"], told[("four",)]["window_from"]) == (32_000, "agent file")
    warning = told["three", "two"]
    assert (warning["log_level"], warning["event"]) == ("warning", "context window unknown")
    assert (warning["model"], warning["window"], warning["window_from"]) == ("b-unknown", 8192, "unknown")
    assert "8,192 tokens are assumed: set context.window in the agent file" in warning["hint"]
    assert len(logs) == 3


async def test_the_hint_names_a_server_that_was_recognised_and_says_no_window(database: Database) -> None:
    stage = await open_stage(database)
    ready = await assemble_agent(stage.dependencies, AGENT)

    class Unloaded(ScriptedModel):
        window = ModelWindow(4096, WindowOrigin.UNKNOWN, "Ollama")

    with capture_logs() as logs:
        log_windows([replace(ready, model=Unloaded())])

    assert logs[0]["hint"].startswith("Ollama has not loaded the model")
    assert "4,096 tokens are assumed" in logs[0]["hint"]


async def test_a_name_that_is_only_like_a_known_one_is_warned_of(database: Database) -> None:
    stage = await open_stage(database)
    ready = await assemble_agent(stage.dependencies, AGENT)

    class Misspelt(ScriptedModel):
        window = ModelWindow(128_000, WindowOrigin.TABLE, neighbour="gpt-4o")

    with capture_logs() as logs:
        log_windows([replace(ready, model=Misspelt())])

    assert (logs[0]["log_level"], logs[0]["event"]) == ("warning", "context window guessed")
    assert "the window of gpt-4o, 128,000 tokens: check its spelling" in logs[0]["hint"]


async def test_a_turn_asks_the_server_before_its_budget_is_made(database: Database) -> None:
    class AskedModel(ScriptedModel):
        async def ask_window(self) -> None:
            self.context_limit = 40_960

    stage = await open_stage(database, model=AskedModel())

    ready = await assemble_agent(stage.dependencies, AGENT)

    assert ready.budget.window_tokens == 40_960


async def learned(stage: Stage, window: int) -> ModelWindow:
    await stage.dependencies.calibrations.save(LEARNED_KEY, Calibration(1.0, 3, learned_window=window))
    return await agent_window(stage.dependencies, AGENT)


async def test_a_window_that_a_refusal_named_is_the_last_word(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.window_origin = WindowOrigin.SERVER

    before = await agent_window(stage.dependencies, AGENT)

    assert before == ModelWindow(8192, WindowOrigin.SERVER)
    assert await learned(stage, 6000) == ModelWindow(6000, WindowOrigin.LEARNED)
    assert (await assemble_agent(stage.dependencies, AGENT)).budget.window_tokens == 6000


async def test_the_window_of_the_agents_file_comes_before_the_models(database: Database) -> None:
    stage = await open_stage(database)

    assert await agent_window(stage.dependencies, with_context(window=4096)) == ModelWindow(
        4096, WindowOrigin.AGENT_FILE
    )


COUNTER = make_counter("tiktoken")
CALLED = Call((ToolCall("c1", TOOL.name, '{"tonnes": 1607}'),), "1,607 tonnes came in.", Usage(215, 40, 128))


class SlowModel(ScriptedModel):
    """A scripted model each of whose events takes half a second of its clock."""

    def __init__(self, *steps: Say | Call | Fail) -> None:
        super().__init__(*steps)
        self.clock = ManualClock()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        async for event in super().stream(request):
            self.clock.advance(0.5)
            yield event


async def checked(model: SlowModel) -> ModelCheck:
    return await check_model(model, COUNTER, AGENT, model.clock)


async def test_a_call_shows_counting_streaming_tools_usage_and_cache() -> None:
    model = SlowModel(CALLED)

    found = await checked(model)

    assert found.failure == ""
    assert found.call is not None
    assert 100 < found.call.counted_tokens < 300
    assert found.call.usage == Usage(215, 40, 128)
    assert (found.call.first_text_seconds, found.call.pieces) == (0.5, 1)
    assert (found.call.tools, found.call.finish_reason) == (ToolUse.CALLED, "tool_calls")
    assert (model.times_asked, len(model.requests)) == (1, 1)


async def test_the_text_is_measured_from_its_first_piece_to_its_last() -> None:
    found = await checked(SlowModel(Say("one two three four five")))

    assert found.call is not None
    assert (found.call.first_text_seconds, found.call.text_seconds) == (0.5, 2.0)
    assert (found.call.text_tokens, found.call.pieces, found.call.tools) == (5, 5, ToolUse.NOT_CALLED)


async def test_the_request_is_the_agents_with_a_small_answer() -> None:
    model = SlowModel(CALLED)
    agent = replace(with_context(response_reserve=300), parameters=ModelParameters(temperature=0.2))

    await check_model(model, COUNTER, agent, model.clock)

    assert model.requests[0].parameters == ModelParameters(temperature=0.2)
    assert model.requests[0].max_output_tokens == 300
    assert model.requests[0].tools == (TOOL,)


async def test_the_window_of_the_file_is_shown_beside_the_models() -> None:
    model = SlowModel(CALLED)

    found = await check_model(model, COUNTER, with_context(window=32_000), model.clock)

    assert found.checked.window == ModelWindow(32_000, WindowOrigin.AGENT_FILE)
    assert found.checked.model_window == ModelWindow(8192, WindowOrigin.TABLE)


async def test_an_address_is_shown() -> None:
    model = SlowModel(CALLED)
    model.address = "http://127.0.0.1:8080/v1"

    assert (await checked(model)).checked.address == "http://127.0.0.1:8080/v1"
    assert (await checked(SlowModel(CALLED))).checked.address == ""


async def test_a_refused_tool_is_told_and_the_rest_is_measured_without_it() -> None:
    model = SlowModel(Fail(ModelInvalidRequest("m: tools need --enable-auto-tool-choice")), Say("1,607 tonnes."))

    found = await checked(model)

    assert found.call is not None
    assert (found.call.tools, found.call.refusal) == (ToolUse.REFUSED, "m: tools need --enable-auto-tool-choice")
    assert found.lacks_tools
    assert [len(request.tools) for request in model.requests] == [1, 0]


async def test_a_refused_tool_is_no_lack_of_an_agent_without_tools() -> None:
    model = SlowModel(Fail(ModelInvalidRequest("no tools")), Say("1,607 tonnes."))

    found = await check_model(model, COUNTER, replace(AGENT, tools=()), model.clock)

    assert not found.lacks_tools


@pytest.mark.parametrize(
    ("steps", "failure"),
    [
        ([Fail(ModelAuthenticationFailed("the key is not accepted"))], "the key is not accepted"),
        ([Fail(ModelUnavailable("the connection failed"))], "the connection failed"),
        ([Fail(ModelInvalidRequest("no such model")), Fail(ModelInvalidRequest("no such model"))], "no such model"),
    ],
)
async def test_a_call_that_fails_leaves_its_cause_and_the_window(steps: list[Fail], failure: str) -> None:
    found = await checked(SlowModel(*steps))

    assert (found.call, found.failure) == (None, failure)
    assert found.checked.window.tokens == 8192
