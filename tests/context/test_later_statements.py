"""Of one subject a later statement replaces an earlier one, unless it says that it adds to it."""

import pytest

from context.strategies import Said, by_length, stored
from throughline.context.summaries.find_facts import facts_of, found_facts
from throughline.context.summaries.keep_lines import adds, later_statements
from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact


def current(*said: tuple[str, str], role: Role = Role.USER) -> list[str]:
    facts = [
        KeptFact(FactKind.VALUE, text, 2 * at + 1, role, subject, chosen=1) for at, (subject, text) in enumerate(said)
    ]
    return [fact.text for fact in merge_kept_facts(facts[:1], facts[1:]) if not fact.replaced_by]


@pytest.mark.parametrize(
    ("subject", "before", "said"),
    [
        ("my allergy", "I am allergic to penicillin.", "I'm allergic to latex too."),
        ("my allergy", "I am allergic to penicillin.", "Also, I'm allergic to latex."),
        ("my allergy", "I am allergic to penicillin", "I am allergic to latex as well, please note"),
        ("my diet", "I do not eat pork.", "I also do not eat nuts."),
        ("access", "Ana 12 has access.", "Additionally Ana 14 has access."),
        ("meine Arznei", "Ich nehme morgens Aspirin.", "Ich nehme auch Insulin."),
        ("meine Arznei", "Ich nehme morgens Aspirin.", "Außerdem nehme ich Insulin."),
        ("mein Essen", "Ich esse kein Fleisch.", "Ich esse ebenfalls keine Nüsse."),
        ("mi alergia", "Soy alérgico a la penicilina.", "También soy alérgico al látex."),
        ("mi alergia", "Soy alérgico a la penicilina.", "Además soy alérgico al látex."),
        ("mon allergie", "Je suis allergique aux noix.", "Je suis aussi allergique au latex."),
        ("mon allergie", "Je suis allergique aux noix.", "Je suis également allergique au latex."),
        ("我的过敏", "我对青霉素过敏。", "我对乳胶也过敏。"),
        ("我的过敏", "我对青霉素过敏。", "我还对乳胶过敏。"),
        ("会议室", "我们订了3号会议室。", "我们又订了5号会议室。"),
    ],
)
def test_what_is_said_to_add_replaces_nothing(subject: str, before: str, said: str) -> None:
    assert current((subject, before), (subject, said)) == [before, said]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("The demo is on Thursday.", "Actually, also move the demo to Friday instead of Thursday."),
        ("The demo is on Thursday.", "We also moved the demo to Friday."),
        ("The demo is at 9.", "At 9 is too early for the demo: at 11."),
        ("The demo is on Thursday.", "We might as well have the demo on Friday."),
        ("Die Demo ist am Montag.", "Die Demo ist auch nicht am Montag, sondern am Dienstag."),
        ("La demo es el lunes.", "También la demo ha cambiado, ahora es el martes."),
        ("演示在星期四。", "演示也改到星期五了。"),
        ("演示在星期四。", "演示还是星期五吧。"),
    ],
)
def test_a_correction_replaces_also_where_it_has_a_word_that_adds(before: str, said: str) -> None:
    assert current(("the demo", before), ("the demo", said)) == [said]


def test_what_was_added_is_corrected_with_what_it_was_added_to() -> None:
    said = "I'm allergic to penicillin.", "I'm allergic to latex too.", "I'm not allergic any more, they tested me."

    assert current(*(("my allergy", text) for text in said)) == [said[-1]]


def test_a_tool_adds_nothing_by_a_word() -> None:
    assert current(("port", "port 5432"), ("port", "port 5433 too"), role=Role.TOOL) == ["port 5433 too"]


def test_what_no_model_named_stands_beside_what_it_adds_to() -> None:
    old = KeptFact(FactKind.VALUE, "The shed needs 36 litres of paint.", 1, subject="litres of paint")
    said = "The shed also needs 57 litres of paint for the door."
    messages = stored([Said(Role.USER, ""), Said(Role.USER, said)], by_length)

    kept = merge_kept_facts((old,), later_statements((old,), messages))

    assert [(fact.text, fact.replaced_by) for fact in kept] == [(old.text, 0), (said, 0)]


@pytest.mark.parametrize("said", ["It is too late.", "I may as well stay.", "也许是星期五。", "还款日期是5月3日。"])
def test_words_that_are_only_spelled_alike_add_nothing(said: str) -> None:
    assert not adds(said)


SMALL_TALK = (
    "I have moved on to the next 3 tickets.",
    "We moved on to the next 3 tickets with the team, no rush.",
    "Our team moved 3 desks today.",
    "My demo tape has 3 songs now.",
    "The build of my new shed took 3 days.",
    "I changed 3 tyres on the server rack cart.",
    "Nothing new here, just 3 emails.",
    "Wait, I have 3 more questions on the next ticket.",
    "It is not funny to be woken at 4 by 3 cats.",
    "Actually, the next database course has 3 lectures.",
)
TRUE = (
    ("", "The database runs on db-prod-3."),
    ("", "Next is db-prod-3."),
    ("db-prod-3", "Deploy to db-prod-3 next."),
    ("server", "Our server is db-prod-3 with 3 disks."),
    ("tickets", "There are 3 tickets left."),
    ("team", "The team has 3 people."),
    ("demo", "The demo is on Thursday at 3."),
    ("the build", "The build takes 3 minutes."),
)


def after(fact: KeptFact, said: str, named: str | None) -> list[tuple[str, int]]:
    """Return what is kept of a fact after a statement, which a model has `named` under a subject or not at all."""
    messages = stored([Said(Role.USER, fact.text), Said(Role.ASSISTANT, "Noted."), Said(Role.USER, said)], by_length)
    old = merge_kept_facts((), (fact, *found_facts(messages[:1])))
    chosen = () if named is None else (KeptFact(FactKind.VALUE, said, 3, Role.USER, named, chosen=1),)
    kept = merge_kept_facts(old, facts_of(messages[2:], chosen, old))
    return [(one.text, one.replaced_by) for one in kept if one.position == 1]


@pytest.mark.parametrize("named", [None, "", "work"])
@pytest.mark.parametrize("said", SMALL_TALK)
def test_small_talk_with_the_same_number_replaces_nothing(said: str, named: str | None) -> None:
    for subject, text in TRUE:
        fact = KeptFact(FactKind.VALUE, text, 1, Role.USER, subject, chosen=1)

        assert after(fact, said, named) == [(text, 0)], (subject, text)


@pytest.mark.parametrize(
    ("subject", "before", "said"),
    [
        ("flight", "The flight leaves at 3.", "The flight at 3 was moved to 5."),
        ("flight", "The flight leaves at 3.", "The flight is moved from 3 to 5."),
        ("flight", "The flight leaves at 3.", "The flight is no longer at 3."),
        ("Flug", "Der Flug geht um 3.", "Der Flug geht jetzt nicht um 3, sondern um 5."),
        ("team", "The team has 3 people.", "The team has 5 people now, not 3."),
        ("demo", "The demo is on Thursday at 3.", "The demo is moved to Friday at 3."),
        ("demo", "The demo is in room 3.", "Meet in room 5 instead of 3 for the demo."),
        ("server", "Our server is db-prod-3 with 3 disks.", "Our server is now db-prod-4."),
        ("", "Meeting 3 is on Monday.", "Meeting 3 moved to Friday."),
        ("", "The database runs on db-prod-3.", "The database now runs on db-prod-4."),
        ("database", "The database runs on db-prod-3.", "The database has moved on to db-prod-4."),
        ("runtime", "The runtime is Python 3.11.", "The runtime moved on to Python 3.12."),
    ],
)
def test_a_change_beside_the_same_number_still_replaces(subject: str, before: str, said: str) -> None:
    fact = KeptFact(FactKind.VALUE, before, 1, Role.USER, subject, chosen=1)

    assert after(fact, said, None if subject else "") == [(before, 3)]
