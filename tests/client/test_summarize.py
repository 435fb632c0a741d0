"""Other programs summarise what they keep themselves with a model's name and nothing else."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.programs import ROOT
from fakes.provider_double import SUMMARISER, ProviderDouble, ScriptStep, Verdict
from fakes.service_process import RunScript
from throughline.client.summarize import summarize_messages
from throughline.domain.errors import InvalidInput, SettingInvalid
from throughline.domain.message import NewMessage, Role, Source
from throughline.llm.counters import make_counter

EXAMPLE = ROOT / "docs" / "examples" / "summarize_a_transcript.py"
COUNT = make_counter("tiktoken").count
TALK: list[dict[str, object]] = [
    {"role": "system", "content": "You answer."},
    {"role": "user", "content": "Anna lives at 12 Quay Street."},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "map"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "The street is closed until 3 May."},
]


async def test_messages_in_openais_format_are_summarised_and_cited_from_1_on() -> None:
    text = await summarize_messages(TALK)

    assert "12 Quay Street. [#1]" in text
    assert "You answer" not in text


async def test_our_own_messages_are_read_as_they_are() -> None:
    said = NewMessage(role=Role.USER, content="Anna lives at 12 Quay Street.", source=Source.API)

    assert "12 Quay Street. [#1]" in await summarize_messages([said])


async def test_no_earlier_summary_may_be_said_as_none() -> None:
    assert await summarize_messages(TALK, None) == await summarize_messages(TALK)


async def test_an_existing_summary_is_part_of_the_new_one() -> None:
    text = await summarize_messages(TALK, "Boris owns 7 ships.")

    assert "7 ships" in text
    assert "12 Quay Street" in text


@pytest.mark.slow
async def test_more_than_the_models_window_holds_is_summarised_to_the_size_that_is_wished() -> None:
    said = [
        {"role": "user", "content": f"Ship {number} carries {number * 7} barrels. " + "It rained again. " * 40}
        for number in range(1, 1201)
    ]
    assert sum(COUNT(item["content"]) for item in said) > 200_000

    text = await summarize_messages(said, max_tokens=600)

    assert 0 < COUNT(text) <= 600


async def test_a_model_of_the_settings_is_asked_at_its_own_server_within_its_window(
    provider_double: ProviderDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DEFAULT_LLM": "openai:double-128k-cl100k",
        "DEFAULT_LLM_BASE_URL": provider_double.url,
        "OPENAI_API_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    provider_double.script(ScriptStep(text='{"error": "overloaded"}'), line=SUMMARISER, then_default=True)
    said = [{"role": "user", "content": f"Ship {number} is late. " + "It rained. " * 60} for number in range(1, 201)]

    text = await summarize_messages(said, model="openai:double-16k-cl100k", instructions="Keep the ships.")

    asked = provider_double.requests
    assert "Ship" in text
    assert {(record.verdict, record.model, record.line) for record in asked} == {
        (Verdict.ANSWERED, "double-16k-cl100k", SUMMARISER)
    }
    assert [position for record in asked[1:] for position in record.positions] == list(range(1, 201))
    assert all("Keep the ships." in str(record.prompt) for record in asked)


@pytest.mark.parametrize(
    ("messages", "options", "complaint"),
    [
        ([{"role": "robot", "content": "x"}], {}, r"messages\.0\.role"),
        ([{"role": "tool", "content": "x"}], {}, "tool_call_id"),
        ([{"content": "x"}], {}, r"messages\.0\.role"),
        ([*TALK, NewMessage(role=Role.USER, content="x", source=Source.API)], {}, "two kinds"),
        ([TALK[1]] * 10_001, {}, "at most 10000"),
        (TALK, {"max_tokens": 3}, "50 to 100000"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_its_place(
    messages: Sequence[Any], options: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        await summarize_messages(messages, **options)


async def test_a_model_without_its_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(SettingInvalid, match="OPENAI_API_KEY"):
        await summarize_messages(TALK, model="openai:gpt-4o-mini")


@pytest.mark.slow
async def test_the_example_runs_without_a_service_a_database_or_a_key(tmp_path: Path, run_alone: RunScript) -> None:
    code, told, complained = await run_alone(tmp_path, {}, EXAMPLE)

    monday, _, both = told.partition("Monday and Tuesday:")
    assert code == 0, complained
    assert "14 May" in monday
    assert "21 May" in both
