"""What an agent file says about overrides: which fields, which models, and how mistakes are told."""

from pathlib import Path

import pytest

from throughline.agents.definition import AgentDefinition, OtherModel
from throughline.agents.registry import AgentDefaults, load_agents
from throughline.domain.errors import AgentInvalid
from throughline.domain.prompt import ModelParameters, OverrideField
from throughline.llm.counters import counter_of

DEFAULTS = AgentDefaults(usage_threshold=0.8, summary_model="", counter_of=counter_of)


def load(folder: Path, text: str) -> AgentDefinition:
    (folder / "own.yaml").write_text(f"name: own\n{text}\n")
    return load_agents([folder], DEFAULTS).get("own")


def test_an_agent_allows_nothing_unless_its_file_says_so(tmp_path: Path) -> None:
    agent = load(tmp_path, "")

    assert (agent.overrides, agent.override_models) == (frozenset(), ())
    shipped = {one.name: one.overrides for one in load_agents([], DEFAULTS).all()}
    assert shipped.pop("assistant") == {OverrideField.INSTRUCTIONS, OverrideField.RESPONSE_FORMAT}
    assert set(shipped.values()) == {frozenset()}


def test_models_are_names_or_mappings_with_their_own_counters(tmp_path: Path) -> None:
    agent = load(
        tmp_path,
        "overrides: [model, temperature, instructions, response_format]\n"
        "override_models:\n"
        "  - openai:gpt-4o\n"
        "  - {model: openai:own, base_url: http://127.0.0.1:1/v1, window: 9000, parameters: {top_p: 0.5}}",
    )

    assert agent.overrides == frozenset(OverrideField)
    assert agent.override_models == (
        OtherModel("openai:gpt-4o", token_counter="tiktoken:o200k_base"),
        OtherModel(
            "openai:own", "http://127.0.0.1:1/v1", None, 9000, ModelParameters(top_p=0.5), token_counter="tiktoken"
        ),
    )
    assert [variant.context.window for variant in agent.variants()] == [None, None, 9000]
    assert [variant.context.token_counter for variant in agent.variants()] == [
        "tiktoken",
        "tiktoken:o200k_base",
        "tiktoken",
    ]


def test_a_counter_that_the_file_names_counts_for_all_models(tmp_path: Path) -> None:
    agent = load(tmp_path, "overrides: [model]\noverride_models: [openai:gpt-4o]\ncontext: {token_counter: chars}")

    assert [variant.context.token_counter for variant in agent.variants()] == ["chars", "chars"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("overrides: [tools]", "overrides[0]: tools is not allowed; allowed: model, temperature, instructions or "),
        ("overrides: model", "overrides: model must be a list"),
        ("overrides: [model]", "override_models: [] must name the models, because `overrides` has model"),
        ("override_models: [a:b]", "needs `model` in `overrides`"),
        ("overrides: [model]\noverride_models: [a:b, {model: a:b}]", "names a model more than once"),
        ("overrides: [model]\noverride_models: [{base_url: http://a/v1}]", "override_models[0].model: missing; write"),
        ("overrides: [model, model]\noverride_models: [a:b]", "overrides: [model, model] names model more than once"),
    ],
)
def test_mistakes_are_told_with_field_value_and_what_is_allowed(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(AgentInvalid) as refused:
        load(tmp_path, text)

    assert told in refused.value.detail.replace("'", "")
