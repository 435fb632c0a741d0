"""The section `parameters`: what it takes, what it refuses, and with which words."""

from dataclasses import fields
from pathlib import Path

import pytest

from throughline.agents.registry import AgentDefaults, load_agents
from throughline.agents.yaml_schema import ParametersSection
from throughline.domain.errors import AgentInvalid
from throughline.domain.prompt import NO_PARAMETERS, ModelParameters

ALL = """
  temperature: 0.2
  top_p: 0.9
  seed: 7
  stop: ["END", "\\n\\n"]
  reasoning_effort: low
  parallel_tool_calls: false
  headers: {X-Team: search}
  body: {top_k: 20, chat_template_kwargs: {enable_thinking: false}}
"""


def load(folder: Path, parameters: str) -> ModelParameters:
    (folder / "a.yaml").write_text(f"name: a\nparameters:{parameters}")
    return load_agents([folder], AgentDefaults(usage_threshold=0.8, summary_model="")).get("a").parameters


def test_every_parameter_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, ALL) == ModelParameters(
        temperature=0.2,
        top_p=0.9,
        seed=7,
        stop=("END", "\n\n"),
        reasoning_effort="low",
        parallel_tool_calls=False,
        headers={"X-Team": "search"},
        body={"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}},
    )
    assert ParametersSection.model_fields.keys() == {declared.name for declared in fields(ModelParameters)}


def test_what_is_empty_is_not_sent(tmp_path: Path) -> None:
    assert load(tmp_path, "") == load(tmp_path, "\n  temperature:\n  stop: []\n  body: {}") == NO_PARAMETERS
    assert dict(NO_PARAMETERS.given()) == {}


def test_zero_and_false_are_sent(tmp_path: Path) -> None:
    read = load(tmp_path, "\n  temperature: 0\n  seed: 0\n  parallel_tool_calls: false")

    assert dict(read.given()) == {"temperature": 0.0, "seed": 0, "parallel_tool_calls": False}


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("{temperature: 2.1}", "parameters.temperature: 2.1 must be at most 2"),
        ("{temperature: .nan}", "parameters.temperature: nan must be a number"),
        ("{temperature: warm}", "parameters.temperature: 'warm' must be a number"),
        ("{top_p: 0}", "parameters.top_p: 0 must be above 0"),
        ("{seed: 1.5}", "parameters.seed: 1.5 must be a whole number"),
        ("{stop: END}", "parameters.stop: 'END' must be a list"),
        ("{stop: ['']}", "parameters.stop[0]: '' must have at least 1 character"),
        ("{stop: [a, b, c, d, e]}", "parameters.stop: ['a', 'b', 'c', 'd', 'e'] must have at most 4 items"),
        ("{reasoning_effort: hard}", "parameters.reasoning_effort: 'hard' is not allowed; allowed: none, minimal"),
        ("{headers: {'a b': x}}", "parameters.headers: has the name 'a b', which is no name of an HTTP header"),
        ("{headers: {X-Api-Key: s3cret}}", "parameters.headers: has X-Api-Key, which the service sets itself"),
        ("{headers: {X-Team: 'ä-s3cret'}}", "parameters.headers: has a value for X-Team with other characters"),
        ("{body: {messages: []}}", "parameters.body: has messages, which the service sets itself"),
        ("{body: {temperature: 1}}", "write it beside `body`, as parameters.temperature"),
        ("{body: {day: 2026-01-01}}", "parameters.body"),
        ("{body: {x: .inf}}", "parameters.body"),
        ("{max_tokens: 5}", "parameters.max_tokens: no such field"),
    ],
)
def test_what_cannot_be_sent_is_refused(tmp_path: Path, written: str, complaint: str) -> None:
    with pytest.raises(AgentInvalid) as caught:
        load(tmp_path, f" {written}")

    assert complaint in caught.value.detail
    assert "s3cret" not in caught.value.detail
