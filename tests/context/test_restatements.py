"""Whether a sentence gives another value to what an earlier sentence states."""

import json

import pytest

from benchmarks.replay_data import SAMPLE
from context.strategies import Said, by_length, stored
from throughline.context.summaries.find_facts import found_facts, without_kept
from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.context.summaries.restatements import differ_in_subject, restates
from throughline.domain.message import Role

CANARIES = json.loads((SAMPLE / "canaries.json").read_text("utf-8"))
STATEMENTS = [
    *(one["text"] for kind in CANARIES["canaries"].values() for one in kind),
    *(pair[name] for pair in CANARIES["restated"] for name in ("before", "after")),
    *(pair[name] for pair in CANARIES["twins"] for name in ("one", "other")),
]
RESTATED = [(pair["before"], pair["after"]) for pair in CANARIES["restated"]]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *RESTATED,
        ("Das Budget ist 4.000 Euro.", "Das Budget ist jetzt 5.500 Euro."),
        ("Die Frist ist der 3. Mai.", "Die Frist ist auf den 17. Mai verschoben."),
        ("El presupuesto es 400 euros.", "El presupuesto ahora es 500 euros."),
        ("Le budget est de 400 euros.", "Le budget est maintenant de 500 euros."),
        ("截止日期是5月3日。", "截止日期改到5月17日。"),
    ],
)
def test_another_value_of_the_same_thing_replaces_the_first(before: str, after: str) -> None:
    assert restates(before, after)

    messages = stored([Said(Role.USER, before), Said(Role.ASSISTANT, "Noted."), Said(Role.USER, after)], by_length)
    kept = merge_kept_facts((), found_facts(messages))
    assert [fact.replaced_by for fact in kept if fact.text == before] in ([], [3])


def test_no_other_two_statements_replace_each_other() -> None:
    wrong = [
        (one, other)
        for one in STATEMENTS
        for other in STATEMENTS
        if one != other and restates(one, other) and not {(one, other), (other, one)} & set(RESTATED)
    ]

    assert wrong == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I am allergic to nuts.", "I am allergic to shellfish."),
        ("The server is called db-prod-3.", "We talked about part 3 and moved on."),
        ("The server is in Frankfurt.", "The server is called db-prod-3."),
        ("The budget is 4,000 euros.", "The budget covers 3 flights."),
        ("We need flour.", "We need eggs now."),
        ("I'm using Flask 2.3.1 and Flask-WTF 1.1.1.", "I'm using Flask 2.3.1 and SQLAlchemy 2.0.19, it is set up."),
    ],
)
def test_further_statements_about_a_thing_replace_nothing(one: str, other: str) -> None:
    assert not restates(one, other)
    assert not restates(other, one)


def test_two_things_that_are_alike_differ_by_a_word_that_is_no_value() -> None:
    assert differ_in_subject("The staging database uses port 5432.", "The production database now uses port 5433.")
    assert not differ_in_subject("The database uses port 5432.", "The database now uses port 5433.")


def test_a_text_loses_the_lines_that_stand_among_the_facts_and_headings_of_nothing() -> None:
    (message,) = stored([Said(Role.USER, "The budget is 4,300 EUR. I want to launch in Brazil.")], by_length)
    text = "## State\n- The budget is 4,300 EUR. [#1]\n## Open items\n- The budget is tight. [#1]\n## Intent"

    assert without_kept(text, found_facts([message])) == "## Open items\n- The budget is tight. [#1]"
