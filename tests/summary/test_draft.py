"""What a summary in the making looks like beside what it replaces."""

import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import pytest

from context.strategies import Said, by_length, stored
from fakes.scripted_model import ScriptedModel
from throughline.context.policy import SummaryKind, SummaryPolicy
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.context.summaries.find_facts import facts_of
from throughline.context.summaries.segment_ends import SummaryLayout
from throughline.domain.basic_types import MessageId, SegmentId, SessionId, UserId
from throughline.domain.message import Role, Source
from throughline.domain.session import Session
from throughline.domain.summary import FactKind, KeptFact, Segment
from throughline.ports.storage import SummaryStore
from throughline.turn.summary.summariser import Summariser, Written
from throughline.turn.summary.summariser_calls import SummariserCalls
from throughline.turn.summary.summary_draft import Assignment, Draft
from throughline.turn.summary.write_segments import SegmentWriter, facts_from_answer, without_recall_results

SESSION = Session(
    id=SessionId(UUID(int=1)),
    owner_id=UserId(UUID(int=2)),
    agent="assistant",
    title="",
    source=Source.API,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    updated_at=datetime(2026, 1, 1, tzinfo=UTC),
)
NARRATIVE = " ".join(
    f"They went through point {number} of the plan and agreed on what to do next." for number in range(9)
)


def draft(*said: str, narrative: str = NARRATIVE, replaced_tokens: int = 0) -> Draft:
    messages = stored([Said(Role.USER, text) for text in said], by_length)
    segment = Segment(
        id=SegmentId(UUID(int=3)),
        from_position=1,
        through_position=len(messages),
        through_id=MessageId(UUID(int=4)),
        level=0,
        text=narrative,
        token_count=by_length(narrative),
        model="m",
        read_hash="",
    )
    return Draft(segments=(segment,), kept_facts=facts_of(messages, (), ()), replaced_tokens=replaced_tokens)


def shown(drafted: Draft, limit_tokens: int = 1500, kind: SummaryKind = SummaryKind.HYBRID) -> tuple[str, int]:
    summary = drafted.rendered(SESSION, SummaryLayout(limit_tokens, kind, by_length))
    return summary.text, summary.tokens


@pytest.mark.parametrize("replaced_tokens", [0, 150, 205, 230, 260, 5000])
def test_instructions_stand_in_the_summary_however_little_it_replaces(replaced_tokens: int) -> None:
    text, tokens = shown(
        draft("Always answer in German.", "Never use emojis.", "Well, well.", replaced_tokens=replaced_tokens)
    )

    assert "- Always answer in German. [#1]\n- Never use emojis. [#2]" in text
    assert "They went through point 0" in text
    assert tokens < max(replaced_tokens, SMALL_SUMMARY_TOKENS)


def test_facts_go_before_a_word_of_the_narrative_does() -> None:
    text, _ = shown(draft("Never use emojis.", *(f"see /srv/file{n}.py" for n in range(20)), replaced_tokens=260))

    assert "Never use emojis." in text
    assert "/srv" not in text
    assert NARRATIVE in text


def test_instructions_as_large_as_what_is_replaced_leave_the_narrative_its_least() -> None:
    rules = tuple(KeptFact(FactKind.INSTRUCTION, f"Always do thing {n} the way it is done here.", n) for n in range(17))

    text, _ = shown(replace(draft("Hello."), kept_facts=rules))

    assert "left out" not in text
    assert "They went through point 0" in text


def test_without_instructions_the_narrative_stands_alone_where_facts_have_no_room() -> None:
    text, _ = shown(draft(*(f"see /srv/file{n}.py" for n in range(20)), narrative=NARRATIVE * 2))

    assert text == f"[#1-#20]\n{NARRATIVE * 2}"


def test_what_a_recall_tool_says_again_changes_nothing() -> None:
    new, old = stored([Said(Role.USER, "KEY-3=v4"), Said(Role.TOOL, "[#1 user] KEY-3=v3", tool_call_id="a")], by_length)
    said = without_recall_results((new, replace(old, name="read_history")))
    named = facts_from_answer(Written("", 0, "m", 0, 0, 0, "value | KEY-3 | KEY-3=v3 | #2"), said)

    assert [one.text for one in facts_of(said, named, ())] == ["KEY-3=v4"]


async def test_what_facts_leave_the_narrative_is_found_once_and_beside_the_loop() -> None:
    threads: list[int] = []

    def count(text: str) -> int:
        threads.append(threading.get_ident())
        return by_length(text)

    facts = tuple(KeptFact(FactKind.VALUE, f"The value number {n} is {n * 7}.", n) for n in range(400))
    summariser = Summariser(ScriptedModel(), SummaryPolicy(), count, max_tokens=1500, window_tokens=8192)
    assignment = Assignment(SESSION, SummaryPolicy(), limit_tokens=1500)
    writer = SegmentWriter(
        cast("SummaryStore", None), assignment, (summariser,), cast("SummariserCalls", None), draft("Hello.")
    )
    writer.draft = replace(writer.draft, kept_facts=facts)

    first = await writer.room_tokens()
    counted = len(threads)
    second = await writer.room_tokens()

    assert first == second
    assert counted > 100
    assert threading.get_ident() not in threads[:100]
    assert len(threads) - counted < 20


def test_facts_outlive_a_summary_of_the_narrative_alone() -> None:
    kept = (
        KeptFact(FactKind.INSTRUCTION, "Answer in German.", 1, subject="language"),
        KeptFact(FactKind.VALUE, "The budget is 4,300 EUR.", 2, subject="budget"),
    )
    told = draft("Hello.", "Hm.", replaced_tokens=3000)
    drafted = replace(told, kept_facts=kept, through_id=MessageId(UUID(int=4)), through_position=2)
    policy = SummaryPolicy(kind=SummaryKind.LLM)

    adoption = drafted.adoption(Assignment(SESSION, policy, limit_tokens=1500), by_length)
    later = shown(replace(drafted, kept_facts=adoption.kept_facts))[0]

    assert "4,300" not in adoption.text
    assert "- Answer in German. [#1]" in later
    assert "- The budget is 4,300 EUR. [#2] earlier" in later  # it may have been changed meanwhile


async def test_a_summary_is_put_together_beside_the_loop() -> None:
    threads: set[int] = set()

    def count(text: str) -> int:
        threads.add(threading.get_ident())
        return by_length(text)

    facts = tuple(KeptFact(FactKind.VALUE, f"The value number {n} is {n * 7}.", n) for n in range(400))
    summariser = Summariser(ScriptedModel(), SummaryPolicy(), count, max_tokens=1500, window_tokens=8192)
    drafted = replace(draft("Hello."), kept_facts=facts, through_id=MessageId(UUID(int=4)), through_position=1)
    assignment = Assignment(SESSION, SummaryPolicy(), limit_tokens=1500)
    writer = SegmentWriter(
        cast("SummaryStore", None), assignment, (summariser,), cast("SummariserCalls", None), drafted
    )

    await writer.session()
    await writer.adoption()

    assert threads
    assert threading.get_ident() not in threads
