"""A fact points to a later statement that may have changed it, where it is not certain that it did."""

import pytest

from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.context.summaries.kept_facts_text import render_facts
from throughline.context.summaries.statements import statement_in
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact


def fact(text: str, position: int, *, subject: str = "", said_by: Role = Role.USER) -> KeptFact:
    return KeptFact(FactKind.VALUE, text, position, said_by, subject)


def words(text: str) -> int:
    return len(text.split())


def test_a_fact_points_to_a_later_change_that_shares_a_rare_word_of_its_subject() -> None:
    kept = (fact("The pickup is done by Fastlane.", 3, subject="pickup courier"), fact("A new pickup firm came.", 8))

    assert "- The pickup is done by Fastlane. [#3; later: #8]" in render_facts(kept, max_tokens=99, count=words)


@pytest.mark.parametrize(
    "ending",
    ["The trade-in is off, he keeps it.", "Ida has taken over the trade-in.", "We decided against the trade-in."],
)
def test_a_fact_points_to_an_omitted_statement_that_may_have_ended_it(ending: str) -> None:
    kept = (fact("His trade-in is an Aurora 3.", 3), fact("Tea is at 4.", 5))

    shown = render_facts(kept, max_tokens=99, count=words, all_facts=(*kept, fact(ending, 8)))

    assert "- His trade-in is an Aurora 3. [#3; later: #8]" in shown
    assert "- Tea is at 4. [#5]" in shown


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The credit comes to 81.80 EUR.", "With the shipping the credit is 19.80 EUR."),
        ("Registration ends on 12 June.", "We keep registration open up to 19 March."),
        ("For search we take Rust-search 2.2.", "Search goes to Kotlin-search 6.6, we decided today."),
        ("El alquiler está en 630 euros al mes.", "Nos suben el alquiler a 681 euros al mes."),
        ("We split the users table into 35 shards.", "Forget the shards, one table is enough."),
    ],
)
def test_a_fact_points_to_a_later_statement_in_other_words_with_another_value(before: str, after: str) -> None:
    kept = merge_kept_facts((fact(before, 3), fact(after, 80)), ())

    assert f"- {before} [#3; later: #80]" in render_facts(kept, max_tokens=99, count=words)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The cable has to have 3.68 m.", "I measured wrong, 7.24 m."),
        ("The heap is set to 5,874 MB.", "No, wrong line, 3,926 MB."),
        ("La estantería mide 51,5 centímetros de ancho.", "Espera, son 24,3 centímetros."),
    ],
)
def test_a_fact_points_to_what_begins_like_a_correction_soon_after_it(before: str, after: str) -> None:
    soon, late = (merge_kept_facts((fact(before, 3), fact(after, at)), ()) for at in (5, 30))

    assert "[#3; later: #5]" in render_facts(soon, max_tokens=99, count=words)
    assert "later:" not in render_facts(late, max_tokens=99, count=words)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Bob's phone is 0171 22991.", "Ida's phone is 0176 33112."),
        ("The dentist is in Bonn.", "The dentist takes 30 euros."),
        ("Ben sings in a choir.", "Ida paints the old choir."),
        ("The hall costs 888 EUR.", "The hall also costs 40 EUR for the heating."),
        ("The hall costs 888 EUR.", "The hall " + "and what one says of it in town " * 3 + "costs 40 EUR."),
        ("The cable has to have 3.68 m.", "No, I have no idea."),
    ],
)
def test_a_fact_points_to_no_other_statement(before: str, after: str) -> None:
    kept = merge_kept_facts((fact(before, 3), fact(after, 5)), ())

    assert "later:" not in render_facts(kept, max_tokens=99, count=words)


def test_a_word_in_many_messages_identifies_nothing() -> None:
    said = ("The harbour has 12 lamps.", "Ida likes the harbour.", "Tea at the harbour?", "Ben left the harbour early.")
    kept = tuple(fact(text, at) for at, text in enumerate((*said, "A boat in the harbour has 14 lights."), start=1))

    assert "later:" not in render_facts(kept, max_tokens=99, count=words)


def test_what_the_assistant_repeats_of_a_replaced_statement_is_left_out() -> None:
    said = "Good to know about the parcel station: number 175."
    kept = merge_kept_facts(
        (
            fact("The parcel station stands at number 175.", 3),
            fact(said, 4, said_by=Role.ASSISTANT),
            fact("The parcel station stands at number 165 now.", 5),
            fact("The parcel station opens at 9, I read.", 6, said_by=Role.ASSISTANT),
        ),
        (),
    )

    shown = render_facts(kept, max_tokens=99, count=words)

    assert said in [one.text for one in kept]
    assert "number 175" not in shown
    assert "number 165 now" in shown
    assert "opens at 9" in shown


@pytest.mark.parametrize(
    "sentence",
    [
        "The trade-in is off, he keeps it.",
        "Das mit den Beeten lassen wir bleiben.",
        "The trip to Kiel was cancelled.",
    ],
)
def test_what_ends_something_is_a_statement(sentence: str) -> None:
    assert statement_in(sentence) == sentence


@pytest.mark.parametrize("sentence", ["This is not working.", "Forget about it.", "Ya no sé qué hacer."])
def test_small_talk_about_what_ends_is_no_statement(sentence: str) -> None:
    assert not statement_in(sentence)


@pytest.mark.parametrize(
    ("stated", "said", "changed"),
    [
        ("The drive takes 2 hours.", "The soup takes 2 hours on low heat.", "The drive takes 3 hours now."),
        ("The demo is on Monday.", "The demo room is free on Monday.", "The demo is on Tuesday now."),
        ("My budget is 500 euros.", "The cheapest camera fits a budget of 500 euros.", "My budget is 700 euros now."),
    ],
)
def test_what_the_assistant_says_of_another_thing_is_shown(stated: str, said: str, changed: str) -> None:
    kept = merge_kept_facts((fact(stated, 3), fact(said, 4, said_by=Role.ASSISTANT), fact(changed, 5)), ())

    assert said in render_facts(kept, max_tokens=99, count=words)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Dinner is on Monday.", "Oh nice, the film starts on Friday."),
        ("The swap has 500 MB.", "No problem, the disk has 20 GB."),
    ],
)
def test_what_only_begins_like_a_correction_is_none(before: str, after: str) -> None:
    assert "later:" not in render_facts((fact(before, 3), fact(after, 5)), max_tokens=99, count=words)


def test_an_ending_counts_for_a_long_statement_too() -> None:
    stated = "The trade-in is an Aurora 3 that my uncle bought in Bonn and that we keep in the garage by the lake."
    kept = (fact(stated, 3), fact("The trade-in is off.", 8))

    assert "[#3; later: #8]" in render_facts(kept, max_tokens=99, count=words)


def test_a_long_statement_points_nowhere() -> None:
    said = "Nobody asked for the trade-in any more, so we talked for an hour about the rain in Bonn and Ida's soup."
    kept = (fact("The trade-in is an Aurora 3.", 3), fact(said, 8))

    assert "later:" not in render_facts(kept, max_tokens=99, count=words)
