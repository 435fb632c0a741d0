"""The planted-fact measure runs from end to end, and counts what it says it counts."""

import random
import re
from collections import Counter
from collections.abc import Sequence

import pytest

from benchmarks.planted_conversation import (
    CORRECTION,
    LEAST_TURNS,
    PIN,
    SIBLING,
    WITHDRAWAL,
    Fact,
    Planted,
    Script,
    lines_of,
    plant,
    read_scripts,
    stands,
)
from benchmarks.planted_facts import TRUE, main, old_pattern, shows_as_current
from benchmarks.planted_summariser import LossySummariser
from throughline.domain.message import text_of

SCRIPTS = (*read_scripts(), *read_scripts(held_out=True))
HEADINGS = {
    *("decision", "deadline", "person", "preference", "value", "identifier", "error", "open question"),
    *("instruction", PIN, CORRECTION, WITHDRAWAL, SIBLING),
}
NO_LIMIT = 1_000_000


def count(text: str) -> int:
    return len(text) // 4 + 1


@pytest.fixture(params=SCRIPTS, ids=lambda script: script.name)
def planted(request: pytest.FixtureRequest) -> Planted:
    script: Script = request.param
    return plant(2000, 1, script, count)


@pytest.fixture
def debugging() -> Planted:
    return plant(LEAST_TURNS, 3, next(script for script in SCRIPTS if script.name == "debugging"), count)


def record(planted: Planted) -> str:
    return "\n".join(f"[#{row.position} {row.role.value}] {text_of(row.content)}" for row in planted.messages)


def holding(planted: Planted) -> list[Fact]:
    gone = {fact.withdraws for fact in planted.facts}
    return [fact for fact in planted.facts if fact.position not in gone]


@pytest.mark.slow
def test_a_small_measure_runs_and_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--turns", "300", "--seeds", "1", "--window", "32000", "--kinds", "german"])

    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    assert rows[0] == ["after", "", "planted", "rolling", "tiered", "rolling llm", "tiered llm"]
    assert [row[0] for row in rows if row[1] == "all facts"] == ["1", "10", "50"]
    assert {row[1].removeprefix("old, ") for row in rows if row[0] == "50"} == {"all facts", TRUE, *HEADINGS}
    assert next(row for row in rows if row[1] == PIN)[3:] == ["100%"] * 4


@pytest.mark.parametrize(
    ("argument", "said"), [(["--turns", "20"], f"--turns is at least {LEAST_TURNS}"), (["--kinds", "x"], "chinese")]
)
def test_what_cannot_be_measured_is_refused_in_words(
    argument: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(argument)

    assert said in capsys.readouterr().err


def test_facts_of_each_kind_stand_where_they_are_said(planted: Planted) -> None:
    said = {row.position: text_of(row.content) for row in planted.messages}

    assert {fact.heading for fact in planted.facts} == HEADINGS
    assert all(fact.sentence in said[fact.position] for fact in planted.facts)
    assert len({fact.sentence for fact in planted.facts}) == len(planted.facts) == 88
    assert all(fact.withdraws < fact.position for fact in planted.facts)
    assert any(said[fact.position].count("\n") >= 42 for fact in planted.facts)
    assert {fact.heading for fact in planted.facts if fact.position <= 80} >= HEADINGS - {WITHDRAWAL, CORRECTION}


def test_the_needles_of_a_fact_stand_together_nowhere_else(planted: Planted) -> None:
    lines = {row.position: lines_of(text_of(row.content)) for row in planted.messages}
    echoed = {row: said for row, said in lines.items() if row in planted.echoes}
    others = {row: said for row, said in lines.items() if row not in echoed}

    for fact in planted.facts:
        assert stands(fact.needles, lines_of(fact.told))
        known = {fact.position, *(later.position for later in planted.facts if later.withdraws == fact.position)}
        found = [row for row, said in others.items() if row not in known and stands(fact.needles, said)]
        assert found == [], fact


def test_another_seed_makes_another_conversation_of_the_same_kind(planted: Planted) -> None:
    other = plant(2000, 2, planted.script, count)

    same = {fact.sentence for fact in planted.facts} & {fact.sentence for fact in other.facts}
    assert len(same) < len(planted.facts) // 2
    assert Counter(fact.heading for fact in planted.facts) == Counter(fact.heading for fact in other.facts)


def test_statements_and_echoes_show_an_old_value_what_takes_it_back_does_not(planted: Planted) -> None:
    old_words = old_pattern(planted.script.language["old_words"])
    at = {fact.position: fact for fact in planted.facts}
    later = [fact for fact in planted.facts if fact.withdraws]
    assert sum(fact.told != fact.sentence for fact in later) == 2

    for fact in later:
        old = at[fact.withdraws]
        assert shows_as_current(lines_of(old.told), old, fact, old_words), old
        assert not shows_as_current(lines_of(fact.told), old, fact, old_words), fact
        if fact.heading == CORRECTION:
            texts = (text_of(row.content) for row in planted.messages if row.position in planted.echoes)
            assert any(shows_as_current(lines_of(text), old, fact, old_words) for text in texts), old


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("- The demo is on Tuesday. [#1]", True),
        ("Kept facts:\n- The demo is on Tuesday\n- The demo is on Thursday", True),
        ("The demo is on Thursday, Tuesday is taken.", False),
        ("The demo was on Tuesday.", False),
        ("demo: Tuesday → another day", False),
        ("A demo. Another on Tuesday and notes.", True),
        ("A demo.\nTuesday.", False),
    ],
)
def test_an_old_value_is_shown_as_current_where_nothing_says_that_it_is_old(text: str, is_shown: bool) -> None:  # noqa: FBT001  # a case
    old = Fact("deadline", "deadline", "demo", "The demo is on Tuesday.", ("demo", "tuesday"), "Tuesday", "")
    new = Fact("deadline", CORRECTION, "demo", "On Thursday.", ("demo", "thursday"), "Thursday", "", 3, 1)

    assert shows_as_current(lines_of(text), old, new, old_pattern(["was", "not"])) is is_shown


def test_the_summariser_keeps_four_facts_of_five_and_as_much_small_talk(debugging: Planted) -> None:
    double = LossySummariser(debugging, random.Random(1), count)

    texts = [double.answer("", record(debugging), NO_LIMIT) for _ in range(20)]

    true = [sum(f"{fact.told} [#{fact.position}]" in text for fact in holding(debugging)) for text in texts]
    lines = [sum(line.startswith("- ") for line in text.splitlines()) - 1 for text in texts]
    assert lines == [2 * number for number in true]
    assert 0.75 < sum(true) / 20 / len(holding(debugging)) < 0.85
    gone = [fact for fact in debugging.facts if fact not in holding(debugging)]
    assert not any(f"- {fact.told}" in text for text in texts for fact in gone)


def test_the_summariser_reads_summaries_and_obeys_the_words_it_is_given(debugging: Planted) -> None:
    double = LossySummariser(debugging, random.Random(1), count, kept=1)
    existing = "[#1-#400]\n" + "\n".join(f"- {fact.told} [#{fact.position}]" for fact in debugging.facts)

    whole = double.answer("", existing, NO_LIMIT)
    short = double.answer("", f"{existing}\nWrite the summary now, in at most 80 words.", NO_LIMIT)

    assert all(fact.told in whole for fact in holding(debugging))
    assert len(whole.splitlines()) == 2 + len(holding(debugging))
    assert 120 < count(short) <= 160
    assert count(double.answer("KEEP: lines", record(debugging), 90)) <= 90


def kept_lines(texts: Sequence[str]) -> list[list[str]]:
    return [line.split(" | ") for text in texts for line in text.partition("\nKEEP:\n")[2].splitlines()]


def test_what_the_summariser_names_is_true_half_the_time_and_sometimes_invented(debugging: Planted) -> None:
    double = LossySummariser(debugging, random.Random(1), count)
    said = {row.position: text_of(row.content) for row in debugging.messages}
    facts = {fact.position: fact for fact in holding(debugging)}

    texts = [double.answer("A line KEEP:\nKEEP: and lines", record(debugging), NO_LIMIT) for _ in range(60)]

    rows = [row for row in kept_lines(texts) if len(row) == 4]
    assert 0.88 < sum(" | " in text.partition("KEEP:")[2] for text in texts) / 60 < 1
    true = [row for row in rows if int(row[3][1:]) in facts]
    assert len(rows) == 2 * len(true)
    assert 0.07 < sum(quote not in said[int(at[1:])] for _, _, quote, at in rows) / len(rows) < 0.13
    again = [row for row in true if facts[int(row[3][1:])].withdraws]
    assert 0.5 < sum(row[1] == facts[int(row[3][1:])].subject for row in again) / len(again) < 0.8
    assert all(row[1] == facts[int(row[3][1:])].subject for row in true if row not in again)


def test_the_summariser_chooses_true_facts_four_times_as_often(debugging: Planted) -> None:
    double = LossySummariser(debugging, random.Random(1), count)
    true = [f"{fact.kind}: {fact.told} [#{fact.position}]" for fact in holding(debugging) if not fact.withdraws]
    lines = [*true, *("value: nothing of the kind [#400]" for _ in true)]
    asked = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))

    answers = [double.answer("Which of these matter? Say at most 10 numbers.", asked, NO_LIMIT) for _ in range(100)]

    chosen = [[int(number) for number in answer.split(", ")] for answer in answers if re.fullmatch(r"[\d, ]+", answer)]
    assert 88 <= len(chosen) < 100
    assert all(len(set(numbers)) == 10 for numbers in chosen)
    hits = sum(number <= len(true) for numbers in chosen for number in numbers)
    assert 0.73 < hits / sum(map(len, chosen)) < 0.85
