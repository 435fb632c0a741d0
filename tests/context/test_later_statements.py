"""Of one subject a later statement replaces an earlier one, unless it says that it adds to it."""

import re
from datetime import UTC, datetime, timedelta
from itertools import chain
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.replay_data import SAMPLE, json_lines
from context.instruction_sentences import SAID_ONCE, STANDING
from context.strategies import Said, by_length, stored
from fakes.growth import FACTOR, grows_linearly
from throughline.context.summaries.change_words import adds
from throughline.context.summaries.find_facts import (
    PATTERNS,
    SENTENCE_CHARACTERS,
    facts_of,
    found_facts,
    is_standing_instruction,
    standing_instructions,
)
from throughline.context.summaries.keep_lines import later_statements
from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.context.summaries.readable_text import entries_of, one_of
from throughline.context.summaries.segment_ends import LONG_PAUSE, first_segment, valley_depths
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.message import Message, Role, Source, ToolCall
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


LEAST_RECALL = 0.9
MOST_FALSE = 0.15
HOSTILE = ("a" * 100_000, "please " * 20_000, "always " * 20_000, ", " * 50_000, "don't " * 20_000, "总是" * 50_000)


@pytest.mark.parametrize("language", STANDING)
def test_most_orders_that_last_are_recognised_in_each_language(language: str) -> None:
    missed = [sentence for sentence in STANDING[language] if not is_standing_instruction(sentence)]

    assert len(missed) <= (1 - LEAST_RECALL) * len(STANDING[language]), missed


@pytest.mark.parametrize("language", SAID_ONCE)
def test_requests_for_once_reports_and_questions_are_not(language: str) -> None:
    false = [sentence for sentence in SAID_ONCE[language] if is_standing_instruction(sentence)]

    assert len(false) <= MOST_FALSE * len(SAID_ONCE[language]), false


def test_sentences_labelled_before_the_rules_are_mostly_judged_rightly() -> None:
    rows = list(json_lines(SAMPLE, "standing_instructions.jsonl"))
    found = {row["text"] for row in rows if standing_instructions(row["text"])}
    standing = {row["text"] for row in rows if row["is_standing"]}

    assert len(found & standing) >= 0.75 * len(standing)
    assert len(found & standing) >= 0.9 * len(found)


@pytest.mark.parametrize("text", ["", "   ", "?", "，", "please", "always", "Always " + "a" * SENTENCE_CHARACTERS])
def test_a_text_without_a_sentence_and_a_paste_are_no_instruction(text: str) -> None:
    assert not is_standing_instruction(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_each_word_decides_about_a_sentence(name: str) -> None:
    """What this finds is to be removed, or a sentence that a user would write is to be added."""
    entries = entries_of(PATTERNS[name])

    assert [entry for entry in entries if not _is_used(name, entry, entries)] == []


def _is_used(name: str, entry: str, entries: list[str]) -> bool:
    """Return whether a sentence is judged wrongly without this entry of a list, and rightly with it."""
    others = {key: one_of(words) for key, words in PATTERNS.items()}
    others[name] = one_of(", ".join(other for other in entries if other != entry))
    pieces = [piece.strip() for piece in re.split(r"[…*]", entry)]
    return any(
        is_standing_instruction(sentence) == is_standing != is_standing_instruction(sentence, others)
        for is_standing, sentences in ((True, STANDING), (False, SAID_ONCE))
        for sentence in chain.from_iterable(sentences.values())
        if all(piece in sentence.lower().replace("’", "'") for piece in pieces)
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_judging_a_hostile_sentence_takes_time_in_proportion(text: str) -> None:
    assert grows_linearly(is_standing_instruction, lambda size: text[:size], len(text) // FACTOR)


START = datetime(2026, 1, 1, tzinfo=UTC)
U, A, T = Role.USER, Role.ASSISTANT, Role.TOOL


def conversation(*roles: Role, pauses: dict[int, timedelta] | None = None) -> tuple[Message, ...]:
    """Messages at positions 1, 2, 3 …, a second apart; `pauses` come before the positions named."""
    found: list[Message] = []
    at = START
    for position, role in enumerate(roles, start=1):
        at += (pauses or {}).get(position, timedelta(seconds=1))
        found.append(_message(position, role, at, calls=roles[position : position + 1] == (T,)))
    return tuple(found)


def _message(position: int, role: Role, at: datetime, *, calls: bool = False, text: str = "word " * 5) -> Message:
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SessionId(UUID(int=0)),
        position=position,
        role=role,
        content=text,
        source=Source.API,
        created_at=at,
        tool_calls=(ToolCall(f"c{position}", "look", "{}"),) if calls else (),
        tool_call_id=f"c{position - 1}" if role is T else None,
    )


def taken(messages: tuple[Message, ...], most: int | None = None, room: int = 10_000) -> int:
    return len(first_segment(messages, room_tokens=room, max_messages=most, count=len))


def test_everything_that_fits_is_one_segment() -> None:
    assert taken(conversation(U, A, U, A, pauses={3: 3 * LONG_PAUSE})) == 4


def test_the_end_is_rather_before_a_user_turn_than_inside_one() -> None:
    assert taken(conversation(U, A, U, A, U, A, A, A, U), most=7) == 4


def test_the_end_is_rather_before_a_long_pause_than_as_late_as_possible() -> None:
    turns = (U, A) * 6

    assert taken(conversation(*turns), most=8) == 8
    assert taken(conversation(*turns, pauses={7: LONG_PAUSE}), most=8) == 6
    assert taken(conversation(*turns, pauses={5: 2 * LONG_PAUSE, 7: LONG_PAUSE}), most=8) == 4


def test_a_pause_near_the_beginning_would_leave_the_segment_too_small() -> None:
    assert taken(conversation(*(U, A) * 6, pauses={3: 9 * LONG_PAUSE}), most=8) == 8


def test_a_call_stays_with_its_result() -> None:
    assert taken(conversation(U, A, T, A, T), most=4) == 3


def test_one_message_that_is_larger_than_the_room_is_a_segment_of_its_own() -> None:
    assert taken(conversation(U, A, U), room=10) == 1


INVOICES = (
    "Which invoices of the printing company are still unpaid?",
    "Two invoices of the printing company are unpaid: March and April.",
    "Send the company a payment for the March invoice, with its number.",
    "The payment for the March invoice is sent, with the invoice number.",
    "And is the April invoice right, with the discount of the printing company?",
    "The April invoice lacks the discount, so its payment waits.",
    "Write the printing company that the discount is missing on the invoice.",
    "The printing company is told that the invoice lacks its discount.",
)
TRIP = (
    "Plan a weekend in Lisbon: which hotel lies near the river and the tram?",
    "The hotel Tejo lies at the river, near the tram to the castle of Lisbon.",
    "Book the hotel for the weekend, and a flight to Lisbon in the morning.",
    "The hotel at the river is booked, and the morning flight to Lisbon.",
    "Where can we eat fish at the river, not far from the hotel?",
    "Near the hotel a small restaurant at the river has fresh fish.",
    "Is there a tram from the restaurant to the castle in the evening?",
    "The tram to the castle of Lisbon runs in the evening, too.",
)


def talk(*texts: str, pauses: dict[int, timedelta] | None = None) -> tuple[Message, ...]:
    """Questions and answers in turn, with these texts."""
    bare = conversation(*(U, A) * (len(texts) // 2), pauses=pauses)
    return tuple(
        _message(message.position, message.role, message.created_at, text=text)
        for message, text in zip(bare, texts, strict=True)
    )


@pytest.mark.parametrize(("first", "second"), [(INVOICES, TRIP), (TRIP, INVOICES)])
@pytest.mark.parametrize("most", [10, 12])
def test_two_subjects_are_two_segments_where_each_fits_one(
    first: tuple[str, ...], second: tuple[str, ...], most: int
) -> None:
    assert taken(talk(*first, *second), most=most) == len(first)


def test_a_long_pause_counts_more_than_a_change_of_subject() -> None:
    assert taken(talk(*INVOICES, *TRIP, pauses={11: LONG_PAUSE}), most=12) == 10


def test_one_subject_alone_is_cut_as_late_as_possible() -> None:
    same = INVOICES[:2] * 8

    assert taken(talk(*same), most=12) == 12


def test_the_valley_is_deepest_where_no_word_is_shared() -> None:
    depths = valley_depths([{"a", "b"}, {"b", "c"}, {"a", "c"}, {"x", "y"}, {"y", "z"}, {"x", "z"}])

    assert max(range(6), key=lambda gap: depths[gap]) == 3


@given(pieces=st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=5), max_size=20))
def test_depths_lie_between_none_and_two_peaks(pieces: list[frozenset[str]]) -> None:
    depths = valley_depths(pieces)

    assert len(depths) == len(pieces)
    assert all(0 <= depth <= 2 for depth in depths)


def test_pieces_that_all_say_the_same_have_no_valley() -> None:
    assert valley_depths([frozenset({"a", "b"})] * 9) == [0.0] * 9


@given(
    roles=st.lists(st.sampled_from([U, A, T]), min_size=1, max_size=30),
    most=st.one_of(st.none(), st.integers(1, 12)),
    room=st.integers(1, 800),
)
def test_segment_after_segment_everything_is_read_once_and_in_order(
    roles: list[Role], most: int | None, room: int
) -> None:
    rest = messages = conversation(*roles)
    read: list[Message] = []
    while rest:
        segment = first_segment(rest, room_tokens=room, max_messages=most, count=len)
        assert segment
        read.extend(segment)
        rest = rest[len(segment) :]

    assert tuple(read) == messages
