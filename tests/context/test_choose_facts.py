"""Which kept facts a model is asked to choose from, and what its choice counts for."""

from dataclasses import replace

from throughline.context.summaries.choose_facts import choice_request, chosen_facts, most_facts
from throughline.context.summaries.kept_facts_text import render_facts
from throughline.domain.kept_facts import FactKind, KeptFact
from throughline.domain.message import text_of

INSTRUCTION = FactKind.INSTRUCTION


def fact(text: str, position: int, kind: FactKind = FactKind.VALUE) -> KeptFact:
    return KeptFact(kind, text, position)


def words(text: str) -> int:
    return len(text.split())


def test_a_choice_is_asked_for_only_where_there_is_no_room_for_all() -> None:
    kept = tuple(fact(f"fact number {at}", at) for at in range(1, 41))

    assert most_facts(kept, 10_000, words) is None
    most = most_facts(kept, 100, words)
    assert most == 16
    request = text_of(choice_request(kept, most).messages[0].content)
    assert "\n7. value: fact number 7 [#7] earlier\n" in request
    assert "at most 16 numbers" in request
    chosen = chosen_facts(kept, ", ".join(map(str, range(20, 60))), most)
    assert [one.position for one in chosen if one.chosen] == list(range(20, 36))
    assert most_facts(chosen, 100, words) is None  # nothing is new


def test_an_answer_of_no_use_counts_for_nobody_and_is_not_asked_for_again() -> None:
    kept = tuple(fact(f"fact number {at}", at) for at in range(1, 41))

    answered = chosen_facts(kept, "I think they all matter.", 16)

    assert {(one.chosen, one.passed_over) for one in answered} == {(0, 0)}
    assert most_facts(answered, 100, words) is None
    assert most_facts((*answered, fact("word " * 17, 41)), 100, words) is not None


def test_what_a_choice_passed_over_again_and_again_is_not_asked_about_again() -> None:
    hopeless, rule = replace(fact("Hens lay.", 1), passed_over=3), fact("Never lie.", 2, INSTRUCTION)
    named = replace(rule, text="Be brief.", position=3, subject="style")

    request = text_of(choice_request((hopeless, rule, named), 1).messages[0].content)

    assert "Hens" not in request
    assert "1. instruction: Never lie. [#2]" in request
    assert "Be brief." not in request


def test_what_was_passed_over_is_shown_where_room_is_left() -> None:
    kept = (fact("The code is 4471.", 1), fact("They talked of hens " * 8, 2))
    answered = chosen_facts(kept, "1", 1)

    assert [one.score for one in answered] == [2 / 3, 1 / 3]
    assert "hens" in render_facts(answered, max_tokens=100, count=words)
    assert "hens" not in render_facts(answered, max_tokens=40, count=words)
    assert "4471" in render_facts(answered, max_tokens=40, count=words)
