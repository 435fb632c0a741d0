"""The planted-fact measure runs from end to end, and counts what it says it counts."""

import asyncio
import random
from dataclasses import replace

import pytest

from benchmarks.planted_conversation import EARLY, LEAST_TURNS, PLANTED, Fact, FactKind, plant
from benchmarks.planted_facts import look, main
from benchmarks.planted_memory import Memory, Variant
from benchmarks.planted_rules import read_labelled
from benchmarks.planted_summariser import LossySummariser
from benchmarks.planted_table import Found
from benchmarks.planted_verdict import ratio, verdict_lines
from throughline.domain.message import Role
from throughline.domain.prompt import Prompt, PromptMessage

RULES = [sentence.text for sentence in read_labelled() if sentence.is_standing]
STATED = Fact(FactKind.WITHDRAWN, "By the way, the lamp costs 38,000 euros.", "38,000 euros", position=1)
CORRECTED = Fact(FactKind.CORRECTION, "Correction: not 38,000 but 41,000 euros.", "41,000 euros", "38,000 euros", 9)


def count(text: str) -> int:
    return len(text) // 4 + 1


def test_a_small_measure_runs_and_prints_the_table_and_the_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--turns", "200", "--seeds", "1"])

    printed = capsys.readouterr().out
    rows = [line.split("|") for line in printed.splitlines() if line.startswith("|")]
    assert {row[1].strip() for row in rows[2:]} == {"1", "10", "50"}
    pins = next(row for row in rows if row[1].strip() == "50" and row[2].strip() == "pin")
    assert [cell.strip() for cell in pins[8:11]] == ["100%", "100%", "100%"]
    assert "(0.0 not accepted)" in printed
    assert "tiered / rolling, free-form facts: " in printed


def test_too_short_a_conversation_is_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--turns", "20"])

    assert f"--turns is at least {LEAST_TURNS}" in capsys.readouterr().err


def test_facts_of_each_kind_stand_early_and_a_correction_after_what_it_corrects() -> None:
    planted = plant(2000, random.Random(3), RULES, count)

    early = [fact for fact in planted.facts if fact.position <= 80]
    assert all(sum(fact.kind is kind for fact in early) >= number for kind, number in EARLY.items())
    corrections = [fact for fact in planted.facts if fact.withdrawn]
    assert len(corrections) == PLANTED[FactKind.CORRECTION]
    at = {fact.key: fact.position for fact in planted.facts}
    assert all(at[fact.withdrawn] < fact.position for fact in corrections)
    said = {row.position: row.content for row in planted.messages}
    assert all(said[fact.position] == fact.sentence for fact in planted.facts)


def test_a_withdrawn_value_misleads_only_where_its_correction_is_not_there() -> None:
    planted = plant(LEAST_TURNS, random.Random(1), RULES, count)
    memory = Memory(Variant.LLM, 1500, LossySummariser((), random.Random(1), count), count)
    messages = planted.messages[:20]
    asyncio.run(memory.compact(messages))
    planted = replace(planted, facts=(STATED, CORRECTED))

    def counted(text: str) -> tuple[int, int]:
        memory.store.session = replace(memory.store.session, conversation_summary=text)
        rows = {row.kind: row for row in look(planted, memory, 1, 50)}
        return rows[FactKind.CORRECTION].narrative, rows[FactKind.WITHDRAWN].narrative

    assert counted("The lamp costs 38,000 euros.") == (0, 1)
    assert counted("The lamp costs 38,000 euros. Correction: not 38,000 but 41,000 euros.") == (1, 0)
    assert counted("A lamp.") == (0, 0)


def test_the_summariser_keeps_no_value_beside_its_correction_and_obeys_its_limit() -> None:
    double = LossySummariser((STATED, CORRECTED), random.Random(1), count)
    record = f"[#1 user] {STATED.sentence}\n[#9 user] {CORRECTED.sentence}"
    prompt = Prompt("system", (PromptMessage(Role.USER, record),))

    texts = [double.write(prompt, 60) for _ in range(200)]

    assert all(count(text) <= 60 for text in texts)
    kept = [text for text in texts if CORRECTED.key in text]
    assert 0.7 < len(kept) / len(texts) < 0.9
    assert not any(STATED.key in text for text in kept)
    assert any(STATED.key in text for text in texts)


@pytest.mark.parametrize(("tiered", "said"), [(12, "should be tiered"), (8, "aim is missed"), (3, "should be rolling")])
def test_the_verdict_follows_from_the_ratio(tiered: int, said: str) -> None:
    found = [
        Found(seed, variant, 50, FactKind.FREE_FORM, 20, kept, 0, kept)
        for seed in (1, 2)
        for variant, kept in ((Variant.ROLLING, 4), (Variant.TIERED, tiered))
    ]

    assert ratio(found) == tiered / 4
    assert said in verdict_lines(found)[-1]
