"""The check at the start of the service: which agent, which field or setting, and what is wrong with it."""

from dataclasses import dataclass, replace

import pytest

from fakes.stage import AGENT
from fakes.tool_box import make_tool_box
from throughline.agents.definition import AgentDefinition, FallbackModel
from throughline.agents.registry import AgentDefaults
from throughline.context.policy import ContextPolicy, SummaryPolicy
from throughline.domain.errors import AgentInvalid, SettingInvalid
from throughline.llm.registry import ModelRegistry
from throughline.ports.models import ChatModel
from throughline.turn.check_agents import check_names

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


def test_a_fallback_model_may_not_take_texts_from_an_own_server_to_the_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    own = replace(AGENT, model="openai:mine", base_url="http://127.0.0.1:9/v1", tools=())
    leaves = replace(own, fallback_models=(FallbackModel("openai:gpt-4o"),))
    stays = replace(own, fallback_models=(FallbackModel("openai:gpt-4o", "http://127.0.0.1:8/v1"),))
    defaults = AgentDefaults(usage_threshold=0.8, summary_model="")
    tools = make_tool_box(timeout_seconds=1, max_result_bytes=1000)

    check_names([stays], defaults, ModelRegistry(), tools)
    with pytest.raises(AgentInvalid) as caught:
        check_names([leaves], defaults, ModelRegistry(), tools)

    assert "fallback_models: openai:gpt-4o: has no base_url" in caught.value.detail
