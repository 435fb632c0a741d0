"""What users state is kept by rule: limits, goals, preferences, people, dates, numbers and names, and no small talk."""

import json

import pytest

from benchmarks.replay_data import SAMPLE
from context.strategies import Said, by_length, stored
from context.test_tiers import segment
from throughline.context.policy import SummaryKind
from throughline.context.summaries.find_facts import cited_facts, found_facts
from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.context.summaries.kept_facts_text import render_facts
from throughline.context.summaries.statements import STATES, importance, kind_of, telling_share
from throughline.context.summaries.summary_layout import STATED_GROWTH_SHARE, SummaryLayout
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact

CANARIES = json.loads((SAMPLE / "canaries.json").read_text("utf-8"))


def found(*said: str) -> tuple[KeptFact, ...]:
    return found_facts(stored([Said(Role.USER, text) for text in said], by_length))


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("Uploads may be at most 25 MB.", FactKind.LIMIT),
        ("We want to launch in Brazil by June.", FactKind.GOAL),
        ("I prefer aisle seats.", FactKind.PREFERENCE),
        ("We decided to use Kafka.", FactKind.DECISION),
        ("The report is due on Friday.", FactKind.DEADLINE),
        ("My sister Mia plays the cello.", FactKind.PERSON),
        ("Das Budget beträgt höchstens 400 Euro.", FactKind.LIMIT),
        ("Ich mag keine langen Besprechungen.", FactKind.PREFERENCE),
        ("Queremos abrir una tienda en Quito.", FactKind.GOAL),
        ("Je préfère le train.", FactKind.PREFERENCE),
        ("我更愿意坐火车。", FactKind.PREFERENCE),
    ],
)
def test_a_statement_is_known_by_its_words(sentence: str, kind: FactKind) -> None:
    assert importance(sentence) >= STATES
    assert kind_of(sentence) is kind
    assert [fact.kind for fact in found(sentence)] == [kind]


def test_small_talk_and_questions_are_not_kept() -> None:
    talk = CANARIES["talk"]["user"]

    assert [fact.text for fact in found(*talk, "Which port does the staging database use?")] == []


def test_rows_of_a_table_and_the_output_of_a_command_state_nothing() -> None:
    table = "id,name,price\n" + "\n".join(f"{number},item{number},{3 * number}.50" for number in range(12))
    output = "$ kubectl get pods\nNAME READY\nweb-1 1/1"

    assert [fact.text for fact in found(table, output) if fact.kind is FactKind.VALUE] == []


def test_of_a_long_message_the_most_important_statements_are_kept() -> None:
    said = " ".join(["I prefer tea."] + [f"The limit of gate {number} is {number} tons." for number in range(2, 30)])

    texts = [fact.text for fact in found(said)]

    assert len(texts) == 20
    assert "I prefer tea." not in texts


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I'm allergic to nuts, can you suggest a recipe?", "I'm allergic to nuts"),
        ("Give me a recipe, I am allergic to nuts.", "I am allergic to nuts"),
        ("My budget is 500 euros, which hotel in Rome is best?", "My budget is 500 euros"),
        ("I'm vegan", "I'm vegan"),
        ("Deadline Friday", "Deadline Friday"),
        ("Budget: 500", "Budget: 500"),
        ("My wife is a nurse.", "My wife is a nurse."),
        ("I work at a bank.", "I work at a bank."),
        ("biscuit is our dog, he snores a lot", "biscuit is our dog, he snores a lot"),
        ("I don't drink coffee.", "I don't drink coffee."),
        ("Monday morning", None),
        ("Translate it into French, please.", None),
        ("Do you have any favourite spots, Jolene?", None),
        ("Thanks Anna", None),
        ("UPDATE users SET budget = 500 WHERE id = 3", None),
        ("limit = 500 # at most", None),
    ],
)
def test_what_is_stated_beside_a_question_or_in_two_words_is_kept(said: str, kept: str | None) -> None:
    assert [fact.text for fact in found(said)] == ([] if kept is None else [kept])


def test_the_facts_of_a_short_talk_stand_below_its_instructions() -> None:
    told = ("I am allergic to nuts.", "The deadline is 3 May.", "My budget is 500 euros.", "We decided to go to Rome.")
    facts = merge_kept_facts((), found("Always answer in metric units.", *told))

    text, _ = SummaryLayout(500, SummaryKind.HYBRID, lambda text: len(text) // 4).render((), facts, 200)

    assert [one for one in told if one not in text] == []


def test_a_narrative_that_denies_a_fact_does_not_tell_it() -> None:
    facts = merge_kept_facts((), found("My budget is 500 euros."))
    denied = segment(1, 1, text="It is not true that My budget is 500 euros.")

    text, _ = SummaryLayout(2000, SummaryKind.HYBRID, by_length).render((denied,), facts, 4000)

    assert "- My budget is 500 euros. [#1]" in text


def test_what_stands_among_the_facts_is_not_told_in_the_narrative() -> None:
    facts = merge_kept_facts((), found("Always answer in metric units.", "The budget is 700 euros now."))
    told = segment(
        1, 2, text="- Always answer in metric units. [#1]\n- The budget is 700 euros now. [#2]\n- They met. [#2]"
    )

    text, _ = SummaryLayout(2000, SummaryKind.HYBRID, by_length).render((told,), facts, 4000)

    assert (text.count("metric units"), text.count("700 euros"), text.count("They met.")) == (1, 1, 1)


def test_what_a_model_chose_comes_before_what_is_only_stated() -> None:
    chosen = KeptFact(FactKind.VALUE, "The door is green.", 90, subject="door", chosen=1)
    facts = merge_kept_facts(
        found(*(f"Gate {number} opens at {number} o'clock." for number in range(1, 40))), (chosen,)
    )

    shown = render_facts(facts, max_tokens=60, count=by_length)

    assert "The door is green." in shown


def test_what_is_only_stated_fills_a_summary_up_to_its_share_of_what_is_added() -> None:
    facts = found(*(f"Gate {number} opens at {number} o'clock." for number in range(1, 200)))
    layout = SummaryLayout(2000, SummaryKind.HYBRID, by_length)

    _, few = layout.render((), facts, 1000)
    _, many = layout.render((), facts, 4000)
    _, first = layout.render((), facts, 30)

    assert 0.8 * STATED_GROWTH_SHARE * 1000 < few <= STATED_GROWTH_SHARE * 1000
    assert 0.8 * STATED_GROWTH_SHARE * 4000 < many <= STATED_GROWTH_SHARE * 4000
    assert 0 < first <= 150  # a summary of nothing else


def test_a_narrative_that_tells_little_gives_its_room_to_the_facts() -> None:
    idle = "\n".join(f"- They talked a while about this and that, {word}." for word in ("then", "also", "and", "so"))
    telling = "\n".join(f"- Ana moved the launch to {day} May [#{day}]." for day in range(2, 6))

    assert telling_share(idle) < telling_share(telling) == 1
    assert telling_share("- 他们谈了很多\n- 今天很好\n- 没有别的") == 1
    assert telling_share("- Fine.") == 1


def test_a_line_that_copies_small_talk_chooses_nothing() -> None:
    messages = stored([Said(Role.USER, "I could use a break soon."), Said(Role.USER, "I prefer tea.")], by_length)

    copied = cited_facts("- I could use a break soon. [#1]\n- The user: I prefer tea. [#2]", "", messages)
    reworded = cited_facts("- Soon a break is needed: they could use some rest. [#1]", "", messages)

    assert [(fact.text, fact.chosen) for fact in copied] == [("I prefer tea.", 1)]
    assert [(fact.text, fact.chosen) for fact in reworded] == [("I could use a break soon.", 1)]


@pytest.mark.parametrize(("line", "said"), [("(10)", "Tell me more. (10)"), ("The user expects 14 guests.", "14")])
def test_a_number_that_no_word_names_is_no_cited_fact(line: str, said: str) -> None:
    assert cited_facts(f"- {line} [#1]", "", stored([Said(Role.USER, said)], by_length)) == ()
