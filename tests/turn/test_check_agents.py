"""The check at the start of the service: which agent, which field or setting, and what is wrong with it."""

from dataclasses import dataclass, replace

import pytest

from fakes.scripted_model import ScriptedModel, ScriptedModels
from fakes.stage import AGENT, open_stage
from fakes.tool_box import make_tool_box
from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.agents.registry import AgentDefaults
from throughline.context.policy import ContextPolicy, SummaryPolicy
from throughline.db.database import Database
from throughline.domain.errors import AgentInvalid, SettingInvalid
from throughline.domain.prompt import ModelParameters, OverrideField
from throughline.llm.registry import ModelRegistry
from throughline.ports.models import ChatModel
from throughline.turn.check_agents import check_agents, check_names

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
