"""The names under which options are written: those of this service, its second names, and those of others."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from throughline.agents.context_schema import ContextSection, ImportanceSection, PruneSection, SummarySection
from throughline.agents.read_file import OTHER_NAMES
from throughline.agents.registry import SHIPPED, AgentDefaults, load_agents
from throughline.agents.section import Section, field_names
from throughline.agents.yaml_schema import AgentFile, section_at
from throughline.domain.errors import AgentInvalid
from throughline.llm.counters import counter_of

ROOT = Path(__file__).parents[2]
DEFAULTS = AgentDefaults(usage_threshold=0.7, summary_model="")
OPTION_ROW = re.compile(r"^\| `(.+?)` \| (accepted|.+) \|$", re.MULTILINE)


def refusal(folder: Path, text: str) -> str:
    (folder / "agent.yaml").write_text(text)
    with pytest.raises(AgentInvalid) as refused:
        load_agents([folder], DEFAULTS)
    return refused.value.detail


def test_recent_messages_are_kept_under_either_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\ncontext: {keep_recent: 8}")
    (tmp_path / "b.yaml").write_text("name: b\ncontext: {strategy: importance, keep_recent: 9}")
    (tmp_path / "c.yaml").write_text("name: c\ncontext: {strategy: truncation, keep_recent: 9, min_recent_messages: 3}")
    (tmp_path / "d.yaml").write_text(
        "name: d\ncontext: {adopt: immediately, keep_recent: 2, max_messages_before_summary: 6}"
    )

    agents = load_agents([tmp_path], DEFAULTS)

    assert [agents.get(name).context.min_recent_messages for name in "abcd"] == [8, 9, 3, 2]
    assert [agents.get(name).context.keep_recent for name in "abcd"] == [20, 20, 9, 20]


def test_a_summary_model_has_its_own_address_and_key(tmp_path: Path) -> None:
    summary = "{model: small, base_url: 'http://summaries/v1', api_key_env: SUMMARY_KEY}"
    text = f"name: a\nbase_url: http://agents/v1\napi_key_env: AGENT_KEY\ncontext: {{summary: {summary}}}"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text.replace(", api_key_env: SUMMARY_KEY", "").replace("name: a", "name: b"))

    agents = load_agents([tmp_path], DEFAULTS)

    own, beside = (agents.get(name).context.summary for name in "ab")
    assert (own.base_url, own.api_key_env) == ("http://summaries/v1", "SUMMARY_KEY")
    assert (beside.base_url, beside.api_key_env) == ("http://summaries/v1", None)  # the agent's key goes nowhere else


def test_tokens_are_counted_with_the_vocabulary_of_the_agents_model(tmp_path: Path) -> None:
    defaults = replace(DEFAULTS, counter_of=counter_of)
    (tmp_path / "a.yaml").write_text("name: a\nmodel: openai:gpt-4o\ncontext: {token_counter: tiktoken}")
    (tmp_path / "b.yaml").write_text("name: b\nmodel: openai:gpt-4o\ncontext: {token_counter: 'tiktoken:cl100k_base'}")
    (tmp_path / "c.yaml").write_text("name: c\nmodel: anthropic:claude-sonnet-4-5")

    agents = load_agents([tmp_path], defaults)

    counters = [agents.get(name).context.token_counter for name in "abc"]
    assert counters == ["tiktoken:o200k_base", "tiktoken:cl100k_base", "tiktoken"]


def test_the_page_of_option_names_tells_what_each_name_does(tmp_path: Path) -> None:
    page = dict(OPTION_ROW.findall((ROOT / "docs" / "reference" / "option-names.md").read_text()))
    context = field_names(ContextSection)

    assert {name for name, told in page.items() if told != "accepted"} == set(OTHER_NAMES)
    assert {name for name, told in page.items() if told == "accepted"} == set(context)
    for other, ours in OTHER_NAMES.items():
        told = f"context.{other}: no such field; write context.{ours}"
        assert told in refusal(tmp_path, f"name: a\ncontext: {{{other}: 5}}")
        assert page[other].replace("`", "") == ours
    for ours in re.findall(r"[\w.]+", " ".join(OTHER_NAMES.values()).replace(" or ", " ")):
        first, _, rest = ours.partition(".")
        assert first in context
        assert not rest or rest in field_names(section_at(("context", first)))
    assert "max_messages_before_summary: no such field; write context.max" in refusal(
        tmp_path, "name: a\nmax_messages_before_summary: 5"
    )


def test_the_shipped_assistant_names_every_field_there_is() -> None:
    text = (SHIPPED / "assistant.yaml").read_text(encoding="utf-8")
    named = set(re.findall(r"^ *(\w+):", text, re.MULTILINE)) | set(re.findall(r"\(also: (?:context\.)?(\w+)\)", text))
    sections: tuple[type[Section], ...] = (AgentFile, ContextSection, SummarySection, PruneSection)

    assert {name for section in sections for name in field_names(section)} - named == set()
    assert all(f"{name}: " in text for name in field_names(ImportanceSection))
