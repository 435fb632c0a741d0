"""What the driver reads, writes and stores with a summariser that does its work."""

import asyncio
import re
from dataclasses import replace

import pytest

from fakes.compactions import SUMMARY, asked, compact_now, fill, loaded, open_summarising, positions_read, store
from fakes.conversations import adoption_of, segment_of
from fakes.scripted_model import Break, Fail, Say, ScriptedModel, Step
from fakes.silent_metrics import SilentMetrics
from fakes.stage import Stage, with_context
from fakes.waiting import ManualClock
from throughline.agents.registry import AgentRegistry
from throughline.context.policy import SummaryKind, SummaryPolicy, SummaryShape
from throughline.context.summaries.facts_choice_prompt import ANSWER_TOKENS, NUMBER_TOKENS
from throughline.context.summaries.summary_prompt import MERGE_TASK, SUMMARISER_SYSTEM_PROMPT, TextRequest
from throughline.db.database import Database
from throughline.domain.errors import ModelUnavailable
from throughline.domain.message import Role
from throughline.domain.prompt import Prompt
from throughline.domain.summary import FactKind, KeptFact, Segment, SummaryState
from throughline.execution.breaker import Breakers
from throughline.turn.prompting.pins import pin_message, unpin_message
from throughline.turn.prompting.ready_agent import assemble_agent
from throughline.turn.summary.choose_facts import choose_facts
from throughline.turn.summary.summariser import Summariser, find_summarisers
from throughline.turn.summary.summariser_calls import SummariserCalls, write_text
from throughline.turn.summary.summarize_now import summarize_transcript

SHAPES = [SummaryShape.ROLLING, SummaryShape.TIERED]
AWAY = Fail(ModelUnavailable("away"))


@pytest.mark.parametrize("shape", SHAPES)
async def test_chunk_after_chunk_is_read_once_and_adopted_as_one_version(
    database: Database, shape: SummaryShape
) -> None:
    stage = await open_summarising(database, shape=shape, chunk_messages=4)
    stage.model.by_request = lambda _: Say(SUMMARY)
    await fill(stage, 7)

    done = await compact_now(stage)

    session = await stage.reload()
    assert (done.outcome, session.summary_through_position, session.summary_version) == ("adopted", 12, 1)
    assert len(stage.model.requests) == 3
    assert positions_read(stage.model.requests) == list(range(1, 13))
    assert [message.position for message in (await loaded(stage)).history] == [13, 14]
    assert done.tokens_after < done.tokens_before


LEAF = "leaf words " * 20


async def open_crowded(database: Database) -> Stage:
    """Open a stage whose summaries have room for nine leaves and a little."""
    return await open_summarising(database, shape=SummaryShape.TIERED, chunk_messages=2, max_tokens=900)


async def test_a_rolling_summary_reads_what_it_replaces_and_is_one_segment(database: Database) -> None:
    stage = await open_summarising(database, chunk_messages=4, shape=SummaryShape.ROLLING)
    stage.model.script(Say("first words"), Say("second words"))
    await fill(stage, 5)

    await compact_now(stage)

    assert "first words" not in asked(stage.model.requests[0])
    assert "first words" in asked(stage.model.requests[1])
    adopted = await database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert adopted is not None
    assert [(part.from_position, part.through_position, part.text) for part in adopted[1]] == [(1, 8, "second words")]


async def test_tiered_segments_stand_alone_and_four_neighbours_are_merged(database: Database) -> None:
    stage = await open_crowded(database)
    stage.model.by_request = lambda request: Say("merged words" if MERGE_TASK in asked(request) else LEAF)
    await fill(stage, 12, words=60)

    await compact_now(stage)

    adopted = await database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert adopted is not None
    assert [(part.from_position, part.through_position, part.level) for part in adopted[1]] == [
        (1, 8, 0),
        *((first, first + 1, 0) for first in range(9, 22, 2)),
    ]
    leaves = [request for request in stage.model.requests if MERGE_TASK not in asked(request)]
    assert not any("leaf words" in asked(request) for request in leaves)
    assert "merged words" in adopted[0].text


async def test_a_merge_that_fails_loses_no_leaf_and_is_made_up_for(database: Database) -> None:
    stage = await open_crowded(database)
    merges: list[Step] = [AWAY, AWAY, Say("merged words")]
    stage.model.by_request = lambda request: merges.pop(0) if MERGE_TASK in asked(request) else Say(LEAF)
    await fill(stage, 11, words=60)

    first = await compact_now(stage)
    leaves = await database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    await fill(stage, 1)
    await compact_now(stage)
    merged = await database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)

    assert first.outcome == "adopted"
    assert leaves is not None
    assert merged is not None
    assert len(leaves[1]) == 10
    assert [part.through_position for part in merged[1]] == list(range(8, 23, 2))


async def test_a_merge_whose_answer_is_of_no_use_is_paid_for_once_in_a_compaction(database: Database) -> None:
    stage = await open_crowded(database)
    stage.model.by_request = lambda request: Say("None" if MERGE_TASK in asked(request) else LEAF)
    await fill(stage, 12, words=60)

    await compact_now(stage)

    assert sum(MERGE_TASK in asked(request) for request in stage.model.requests) == 2
    assert (await stage.reload()).summary_through_position == 22


async def test_a_merge_whose_answer_is_of_no_use_is_asked_for_again_and_then_made_by_rules(database: Database) -> None:
    stage = await open_crowded(database)
    stage.model.by_request = lambda request: Say("None" if MERGE_TASK in asked(request) else LEAF)
    await fill(stage, 11, words=60)
    merges = []

    for _ in range(6):
        await compact_now(stage)
        merges.append(sum(1 for request in stage.model.requests if MERGE_TASK in asked(request)))
        await fill(stage, 1)

    assert merges == [2, 2, 4, 4, 4, 4]  # a text of no use is asked for once more
    assert (await stage.reload()).summary_through_position == 30


@pytest.mark.parametrize("shape", SHAPES)
async def test_messages_that_arrive_between_cycles_are_neither_skipped_nor_read_twice(
    database: Database, shape: SummaryShape
) -> None:
    stage = await open_summarising(database, shape=shape, chunk_messages=6)
    stage.model.by_request = lambda _: Say(SUMMARY)

    for _ in range(6):
        await fill(stage, 4)
        assert (await compact_now(stage)).outcome == "adopted"

    session = await stage.reload()
    assert positions_read(stage.model.requests) == list(range(1, session.summary_through_position + 1))
    assert (session.summary_version, session.summary_through_position) == (6, 46)


async def test_messages_that_arrive_while_the_summariser_writes_are_read_the_next_time(database: Database) -> None:
    gate = asyncio.Event()
    stage = await open_summarising(database)
    stage.model.script(Say(SUMMARY, gate=gate), Say(SUMMARY))
    await fill(stage, 4)
    under_way = asyncio.create_task(compact_now(stage))
    while not stage.model.requests:
        await asyncio.sleep(0.01)
    await fill(stage, 3)
    gate.set()

    first = await under_way
    await compact_now(stage)

    assert first.session.summary_through_position == 6
    assert positions_read(stage.model.requests) == list(range(1, 13))


async def test_what_was_paid_before_a_crash_is_not_paid_again(database: Database) -> None:
    stage = await open_summarising(database, chunk_messages=4)
    stage.model.script(Say("first words"), Break(asyncio.CancelledError()))
    await fill(stage, 5)
    with pytest.raises(asyncio.CancelledError):
        await compact_now(stage)
    assert (await stage.reload()).summary_version == 0
    stage.model.requests.clear()
    stage.model.script(Say("second words"))

    done = await compact_now(stage)

    assert done.outcome == "adopted"
    assert positions_read(stage.model.requests) == [5, 6, 7, 8]


async def test_what_was_read_for_a_narrative_alone_is_read_again_for_its_facts(database: Database) -> None:
    stage = await open_summarising(database, chunk_messages=4, kind=SummaryKind.LLM)
    stage.model.script(Say("first words"), Break(asyncio.CancelledError()))
    await fill(stage, 5)
    with pytest.raises(asyncio.CancelledError):
        await compact_now(stage)
    stage.model.by_request = lambda _: Say(f"{SUMMARY}\nKEEP:\nvalue | count | user 0 word | #1")
    hybrid = with_context(window=8192, min_recent_messages=2, summary=SummaryPolicy(chunk_messages=4))
    stage.dependencies = replace(stage.dependencies, agents=AgentRegistry([hybrid]))

    await compact_now(stage)

    version = await database.summaries.latest(stage.session.id)
    assert version is not None
    assert any(fact.text.startswith("user 0 word") for fact in version.kept_facts)


async def test_a_summary_model_that_breaks_in_an_unforeseen_way_fails_no_turn(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.script(Break(RuntimeError("a defect of the adapter")))
    await fill(stage, 4)

    done = await compact_now(stage)

    assert (done.outcome, (await stage.reload()).summary_version) == ("failed", 0)


async def test_of_two_drivers_one_wins_and_the_others_work_is_dropped(database: Database) -> None:
    gate = asyncio.Event()
    stage = await open_summarising(database)
    stage.model.script(Say("slow words", gate=gate), Say("quick words"))
    await fill(stage, 4)
    slow = asyncio.create_task(compact_now(stage, "slowly"))
    while not stage.model.requests:
        await asyncio.sleep(0.01)

    quick = await compact_now(stage)
    gate.set()
    late = await slow

    assert (quick.outcome, quick.is_stale) == ("adopted", False)
    assert (late.outcome, late.is_stale) == ("skipped", True)
    session = await stage.reload()
    assert (session.summary_version, "quick words" in session.conversation_summary) == (1, True)
    assert [row["reason"] for row in stage.metrics.of("summary_unused")] == ["conflict"]


async def test_a_hybrid_summary_keeps_facts_word_for_word_and_the_other_kind_does_not(database: Database) -> None:
    hybrid, plain = await open_summarising(database), await open_summarising(database, kind=SummaryKind.LLM)
    for stage in (hybrid, plain):
        stage.model.by_request = lambda _: Say(SUMMARY)
        told = "From now on always answer in French. The file is /srv/data/report-7731.csv"
        await store(stage, (Role.USER, told + ".\n" + " word" * 400), (Role.ASSISTANT, "noted"))
        await fill(stage, 1)

        await compact_now(stage)

    kept, bare = await hybrid.reload(), await plain.reload()
    assert "/srv/data/report-7731.csv" in kept.conversation_summary
    assert "/srv/data/report-7731.csv" not in bare.conversation_summary
    version = await database.summaries.latest(kept.id)
    assert version is not None
    assert "/srv/data/report-7731.csv" in " ".join(fact.text for fact in version.kept_facts)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_summary_from_before_facts_were_kept_is_gone_on_with(database: Database, shape: SummaryShape) -> None:
    stage = await open_summarising(database, shape=shape)
    await fill(stage, 3)
    await adopt_the_old_way(stage, (2, "cumulative one"), (4, "cumulative two"))
    stage.model.by_request = lambda _: Say("further words")
    await fill(stage, 3)

    done = await compact_now(stage)

    text = (await stage.reload()).conversation_summary
    assert (done.outcome, done.session.summary_through_position) == ("adopted", 10)
    assert positions_read(stage.model.requests) == list(range(5, 11))
    assert "cumulative one" not in text
    assert "further words" in text
    assert "cumulative two" in (text if shape is SummaryShape.TIERED else asked(stage.model.requests[0]))


async def adopt_the_old_way(stage: Stage, *reached: tuple[int, str]) -> None:
    """Store segments that follow each other, each with a text that stands for everything before it too."""
    messages, summaries, first = await stage.messages(), stage.database.summaries, 1
    segments: list[Segment] = []
    for version, (position, text) in enumerate(reached):
        through = messages[position - 1]
        segments.append(await summaries.save_segment(stage.session.id, segment_of(through, text, first=first)))
        await summaries.adopt_summary(adoption_of(version, through, *segments))
        first = position + 1


async def test_a_summary_can_be_asked_for_outside_any_session(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Say(SUMMARY)
    await fill(stage, 2)
    agent = await assemble_agent(stage.dependencies, stage.dependencies.agents.get("assistant"))
    (summariser,) = await find_summarisers(stage.dependencies, agent)

    written = await summarize_transcript(await stage.messages(), "what was before", summariser)

    assert written == SUMMARY
    assert "what was before" in asked(stage.model.requests[0])
    assert stage.model.requests[0].tools == ()


async def test_a_pinned_message_stays_in_the_conversation_when_the_cursor_passes_it(database: Database) -> None:
    stage = await open_summarising(database)
    stage.model.by_request = lambda _: Say(SUMMARY)
    await fill(stage, 4)
    await database.pins.pin(
        stage.owner_id, stage.session.id, ((await stage.messages())[2].id,), lambda _elsewhere: None
    )

    await compact_now(stage)

    assert [message.position for message in (await loaded(stage)).pinned] == [3]
    assert [message.position for message in (await loaded(stage)).history] == [7, 8]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_pinned_first", [True, False])
async def test_a_fact_that_a_pinned_message_states_is_in_the_prompt_once_the_pin_is_gone(
    database: Database, shape: SummaryShape, *, is_pinned_first: bool
) -> None:
    stage = await open_summarising(database, shape=shape)
    stage.model.by_request = lambda request: Say(
        SUMMARY if request.prompt.system.startswith(SUMMARISER_SYSTEM_PROMPT) else "Noted."
    )
    weight = "The crate from Lisbon weighs 412 kilograms."
    await store(stage, (Role.USER, weight), (Role.ASSISTANT, "Noted. " * 60))
    await fill(stage, 4)
    first = (await stage.messages())[0]
    if not is_pinned_first:
        await compact_now(stage)
    await pin_message(stage.dependencies, database.pins, await stage.reload(), first.id)
    await fill(stage, 4)
    await compact_now(stage)

    await unpin_message(database.pins, await stage.reload(), first.id)
    await stage.turn("And now?")

    prompt = stage.model.requests[-1].prompt
    assert f"- {weight} [#1]" in prompt.system
    assert all(weight not in str(message.content) for message in prompt.messages)


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_was_too_much_to_load_is_read_page_by_page_and_adopted_at_once(
    database: Database, shape: SummaryShape
) -> None:
    stage = await open_summarising(database, shape=shape, chunk_messages=20, timeout_seconds=600)
    stage.model.by_request = lambda _: Say(SUMMARY)
    await fill(stage, 60, words=600)

    done = await compact_now(stage)

    session = await stage.reload()
    assert (done.outcome, session.summary_version, session.summary_through_position) == ("adopted", 1, 118)
    assert positions_read(stage.model.requests) == list(range(1, 119))


def test_a_factor_below_one_does_not_make_requests_larger_than_the_window() -> None:
    modest = Summariser(ScriptedModel(), SummaryPolicy(), count=len, max_tokens=100, window_tokens=2_000, factor=0.971)

    assert modest.output_tokens(100) == 100
    assert modest.request_tokens(100) == 1_900


async def test_what_a_model_thinks_of_the_lines_to_keep_is_no_end_of_its_summary() -> None:
    thought = "<think>So I write\nKEEP:\nand lines below it.</think>"
    model = ScriptedModel()
    model.script(Say(f"{thought}## State\nAll is well."))
    summariser = Summariser(model, SummaryPolicy(), len, max_tokens=100, window_tokens=8192)

    written = await write_text(summariser, TextRequest(Prompt("", ()), max_tokens=100, keep_tokens=100))

    assert written.text == "## State\nAll is well."


async def test_a_window_without_room_for_all_facts_is_asked_about_the_newest() -> None:
    kept = tuple(KeptFact(FactKind.VALUE, f"fact {n} of many words", n) for n in range(1, 300))
    model, clock = ScriptedModel(), ManualClock()
    model.script(Say(", ".join(map(str, range(1, 23)))))
    small, smaller = (Summariser(model, SummaryPolicy(), len, max_tokens=100, window_tokens=n) for n in (5000, 2048))
    calls = SummariserCalls(clock, SilentMetrics(), Breakers(clock), "", deadline=100.0)

    async def asking(summariser: Summariser, asked: TextRequest) -> str:
        return (await calls.ask(summariser, asked)).text

    chosen = await choose_facts(kept, 1000, (smaller, small), calls, asking)

    (request,) = model.requests
    (most,) = map(int, re.findall(r"\n\nReturn at most (\d+) numbers", asked(request)))
    assert small.prompt_tokens(request.prompt) <= small.request_tokens(ANSWER_TOKENS + NUMBER_TOKENS * most)
    assert "299" in asked(request)
    judged = [fact.position for fact in chosen if not fact.is_unjudged]
    assert judged == list(range(judged[0], 300))
    assert [fact.position for fact in chosen if fact.chosen] == judged[:most]
