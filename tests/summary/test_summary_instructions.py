"""What users ask of summaries: each request reaches the model whole, what it costs is told, and going back stays."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import pytest

from context.strategies import Said, by_length, stored
from fakes.compactions import asked, fill, open_summarising, positions_read, prepare_one, store
from fakes.scripted_model import Call, Fail, Say, ScriptedModel
from fakes.stage import Stage, open_stage, with_context
from throughline.client.summarize import numbered
from throughline.context.budget import make_budget
from throughline.context.plan_context import ContextPlan
from throughline.context.policy import SummaryKind, SummaryPolicy
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS, NotWorthIt, SummaryRejected
from throughline.context.summaries.find_facts import facts_of, named_facts, without_recall_results
from throughline.context.summaries.summary_layout import SummaryLayout
from throughline.db.database import Database
from throughline.db.sessions.redaction import Redaction
from throughline.db.sessions.repository import SessionChange
from throughline.domain.basic_types import MessageId, SegmentId, SessionId, UserId
from throughline.domain.errors import InvalidInput, ModelRejected, ModelUnavailable
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.prompt import ModelRequest
from throughline.domain.session import Session
from throughline.domain.summary import Conversation, FactKind, KeptFact, Segment, SummaryState
from throughline.llm.counters import PluginCounter, make_counter
from throughline.ports.hooks import PreCompact
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.summary.compaction import Compaction, Draft
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.prepare import prepare_next
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summariser import Summariser
from throughline.turn.summary.summariser_calls import SummariserCalls
from throughline.turn.summary.summarize_now import estimate_summary, summarize_now, summarize_transcript
from throughline.turn.summary.write_summary import SummaryWriter

RULE = "Never forget the allergy to nuts."


def told(request: ModelRequest) -> Say:
    places = re.findall(r"^\[#(\d+)", asked(request), re.MULTILINE)
    return Say(f"## State\nRead [#{places[0]}-#{places[-1]}]." if places else "## State\nMerged.")


async def summarising(database: Database, **summary: object) -> Stage:
    stage = await open_summarising(database, **summary)  # type: ignore[arg-type]  # fields by name
    stage.model.by_request = told
    return stage


async def keep(stage: Stage, request: str) -> None:
    change = SessionChange(summary_instructions=request)
    await stage.database.sessions.update(stage.owner_id, stage.session.id, change)


async def prepared(stage: Stage) -> bool:
    return await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED) is not None


async def test_every_request_is_told_whole(database: Database) -> None:
    agents = f"Keep all names. {'a' * 3_900}"
    policy = SummaryPolicy(instructions=agents)
    stage = await open_stage(database, agent=with_context(window=65_536, min_recent_messages=2, summary=policy))
    stage.model.by_request = told
    await fill(stage, 6)
    kept, request = f"{'b' * 1_900} {RULE} {'b' * 1_900}", f"Keep the deadline. {'c' * 3_900}"
    await keep(stage, kept)

    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest(request))

    assert done.outcome == "adopted"
    assert all(part in asked(stage.model.requests[0]) for part in (agents, kept, request))


async def test_instructions_that_no_model_has_room_for_are_named_as_the_reason(database: Database) -> None:
    stage = await summarising(database)
    await fill(stage, 6)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    await fill(stage, 6)
    await keep(stage, "🥜" * 4_000)
    before = len(stage.model.requests)

    refused = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    with pytest.raises(InvalidInput, match="shorten summary_instructions"):
        await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest("Keep the deadline."))

    assert refused.outcome == "failed"
    assert "window of 8,192: shorten summary_instructions" in refused.detail
    assert (await stage.reload()).summary_failure == refused.detail
    assert len(stage.model.requests) == before


@pytest.mark.parametrize("chunk_messages", [2, 10])
async def test_the_cost_of_short_segments_is_told_and_bounded(database: Database, chunk_messages: int) -> None:
    stage = await summarising(database, chunk_messages=chunk_messages)
    await fill(stage, 60)
    first = await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest("Keep it."))
    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest("Keep it."))

    again = await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest("Keep the place."))
    redone = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest("Keep the place."))

    for cost, spent in ((first, done.spent.calls), (again, redone.spent.calls)):
        assert 0.6 * spent <= cost.calls <= 1.5 * spent
    assert max(again.calls, redone.spent.calls) <= 32


async def test_the_cost_of_what_is_new_is_that_of_going_on_from_the_summary_that_is_ready(database: Database) -> None:
    stage = await summarising(database, chunk_messages=10)
    await fill(stage, 20)
    assert await prepare_one(stage)
    ready = (await stage.database.summaries.list(stage.owner_id, stage.session.id)).items[0].through_position
    await fill(stage, 10)

    cost = await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest())
    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    assert 0 < ready < done.session.summary_through_position
    assert (cost.from_position, cost.through_position) == (ready + 1, done.session.summary_through_position)
    assert 0.6 * done.spent.calls <= cost.calls <= 1.5 * done.spent.calls


async def test_a_request_begins_where_it_was_told_to_also_behind_what_was_merged(database: Database) -> None:
    stage = await summarising(database, chunk_messages=8)
    stage.model.by_request = lambda request: Say(
        f"{told(request).text} {'Wished. ' if 'Keep it.' in asked(request) else ''}{'More of it. ' * 50}"
    )
    await fill(stage, 80)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    parts = await database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert parts is not None
    merged = max(parts[1], key=lambda segment: segment.level)
    inside = merged.through_position - 3

    cost = await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest("Keep it.", inside))
    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest("Keep it.", inside))

    assert merged.level > 0
    assert inside - 8 <= cost.from_position <= inside
    assert done.outcome == "adopted", done.detail
    assert done.spent.calls <= 1.5 * cost.calls


async def test_large_tool_outputs_do_not_keep_a_request_from_older_messages(database: Database) -> None:
    stage = await open_stage(database, agent=with_context(window=8192, min_recent_messages=2, summary=SummaryPolicy()))
    stage.model.by_request = told
    talk = [(role, f"{role.value} {n} {'word ' * 30}") for n in range(4) for role in (Role.USER, Role.ASSISTANT)]
    await store(stage, *talk, (Role.USER, "x" * 600_000), *talk)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    cost = await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest("Keep #1."))
    stage.model.requests.clear()
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest("Keep #1."))

    assert cost.from_position == 1
    assert cost.calls <= 4
    assert "[#1 user]" in asked(stage.model.requests[0])


async def test_what_is_prepared_is_forgotten_where_its_instructions_change(database: Database) -> None:
    stage = await summarising(database)
    await fill(stage, 20)
    assert await prepare_one(stage)

    await keep(stage, "")
    is_there = await prepared(stage)
    await keep(stage, RULE)
    is_forgotten = not await prepared(stage)
    assert await prepare_one(stage)

    assert (is_there, is_forgotten) == (True, True)
    assert RULE in asked(stage.model.requests[-1])


async def test_what_is_being_prepared_is_dropped_where_its_instructions_change(database: Database) -> None:
    stage = await summarising(database)
    await fill(stage, 20)
    before = await stage.reload()
    await keep(stage, RULE)

    done = await prepare_next(stage.dependencies, before)

    assert RULE in asked(stage.model.requests[-1]) or done.outcome != "prepared"


async def test_what_is_read_again_and_says_the_same_is_no_further_version(database: Database) -> None:
    stage = await summarising(database)
    await fill(stage, 12)
    first = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())

    again = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest(from_position=1))

    assert again.outcome == "skipped"
    assert "Give other instructions" in again.detail
    assert (await stage.reload()).summary_version == first.session.summary_version


async def test_a_position_behind_the_last_message_is_refused(database: Database) -> None:
    stage = await summarising(database)
    await fill(stage, 6)

    for asked_for in (estimate_summary, summarize_now):
        with pytest.raises(InvalidInput, match="no message #13: the session has 12"):
            await asked_for(stage.dependencies, await stage.reload(), SummaryRequest(from_position=13))


async def test_a_redaction_brings_no_summary_back(database: Database) -> None:
    stage = await summarising(database)
    await fill(stage, 12)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    await stage.database.summaries.restore(stage.owner_id, stage.session.id, None)

    newest = (await stage.messages())[-1]
    await database.messages.redact(Redaction(stage.owner_id, stage.session.id, newest.id))

    assert (await stage.reload()).summary_through_position == 0


async def test_going_back_to_no_summary_forgets_a_prepared_one(database: Database) -> None:
    stage = await summarising(database)
    await fill(stage, 20)
    assert await prepare_one(stage)

    session = await stage.database.summaries.restore(stage.owner_id, stage.session.id, None)

    assert not await prepared(stage)
    assert (session.summary_through_position, session.summary_version) == (0, 0)


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
    return drafted.rendered(SESSION, SummaryLayout(limit_tokens, kind, by_length))


def compaction(policy: SummaryPolicy, count: Callable[[str], int] = by_length) -> Compaction:
    """A compaction of SESSION without a plan."""
    definition = with_context(summary=policy)
    agent = ReadyAgent(
        definition=definition,
        model=ScriptedModel(),
        counter=PluginCounter("by this test", count),
        tools=(),
        tools_tokens=0,
        budget=make_budget(definition.context, 8192),
        factor=1.0,
    )
    return Compaction(agent, Conversation(SESSION), cast("ContextPlan", None))


def writer_of(drafted: Draft, count: Callable[[str], int]) -> SummaryWriter:
    """A writer that has begun with the draft, and has nothing to store or to ask with."""
    summariser = Summariser(ScriptedModel(), SummaryPolicy(), count, max_tokens=1500, window_tokens=8192)
    task, calls = compaction(SummaryPolicy(), count), cast("SummariserCalls", None)
    writer = SummaryWriter(cast("SummaryDependencies", None), task, cast("PreCompact", None), calls)
    writer.summarisers, writer.draft = (summariser,), drafted
    return writer


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
    named = named_facts("", "value | KEY-3 | KEY-3=v3 | #2", said)

    assert [one.text for one in facts_of(said, named, ())] == ["KEY-3=v4"]


async def test_what_facts_leave_the_narrative_is_found_once_and_beside_the_loop() -> None:
    threads: list[int] = []

    def count(text: str) -> int:
        threads.append(threading.get_ident())
        return by_length(text)

    facts = tuple(KeptFact(FactKind.VALUE, f"The value number {n} is {n * 7}.", n) for n in range(400))
    writer = writer_of(replace(draft("Hello."), kept_facts=facts), count)

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
    drafted = replace(told, kept_facts=kept)

    adoption = drafted.adoption(compaction(SummaryPolicy(kind=SummaryKind.LLM)))
    later = shown(replace(drafted, kept_facts=adoption.kept_facts))[0]

    assert "4,300" not in adoption.text
    assert "- Answer in German. [#1]" in later
    assert "- The budget is 4,300 EUR. [#2] may be outdated" in later  # it may have been changed meanwhile


async def test_a_summary_is_put_together_beside_the_loop() -> None:
    threads: set[int] = set()

    def count(text: str) -> int:
        threads.add(threading.get_ident())
        return by_length(text)

    facts = tuple(KeptFact(FactKind.VALUE, f"The value number {n} is {n * 7}.", n) for n in range(400))
    writer = writer_of(replace(draft("Hello."), kept_facts=facts), count)

    await writer.session()
    await writer.adoption()

    assert threads
    assert threading.get_ident() not in threads


COUNT = make_counter("tiktoken").count
LIMIT = 100
ERROR_TEXT = '{"error": {"message": "The server is overloaded", "type": "server_error"}}'


def said(number: int, words: int = 40) -> list[Message]:
    roles = (Role.USER, Role.ASSISTANT)
    return [message(place, roles[place % 2], f"word {place} " * words) for place in range(1, number + 1)]


def message(position: int, role: Role, text: str) -> Message:
    return numbered(position, NewMessage(role=role, content=text, source=Source.API))


def summariser_on(model: ScriptedModel) -> Summariser:
    return Summariser(
        model=model,
        policy=SummaryPolicy(max_tokens=LIMIT),
        count=COUNT,
        max_tokens=LIMIT,
        window_tokens=model.context_limit,
        factor=1.0,
    )


async def test_what_does_not_fit_the_window_is_read_in_pieces_each_with_the_text_so_far() -> None:
    steps = [Say(f"## State\nText number {number} [#1].") for number in range(30)]
    model = ScriptedModel(*steps, context_limit=2048)

    text = await summarize_transcript(said(40), "What was before.", summariser_on(model))

    requests, number = model.requests, len(model.requests)
    sizes = [COUNT(request.prompt.system) + COUNT(asked(request)) + LIMIT for request in requests]
    assert number > 3
    assert text == f"## State\nText number {number - 1} [#1]."
    assert positions_read(requests) == list(range(1, 41))
    assert max(sizes) <= 2048
    assert "What was before." in asked(requests[0])
    assert all(f"Text number {index} " in asked(later) for index, later in enumerate(requests[1:]))


async def test_a_call_and_its_result_are_read_together() -> None:
    call = replace(message(2, Role.ASSISTANT, ""), tool_calls=(ToolCall("c", "look_up", '{"q": 1}'),))
    result = replace(message(3, Role.TOOL, "found it"), tool_call_id="c", name="look_up")
    model = ScriptedModel(Say("It was found [#3]."))

    await summarize_transcript([*said(1), call, result], "", summariser_on(model))

    assert re.search(r"\[#2 calls\] look_up.*\n\[#3 tool look_up\] found it", asked(model.requests[0]))


@pytest.mark.parametrize("useless", [Say(ERROR_TEXT), Say(""), Call((ToolCall("c", "look_up", "{}"),), "text")])
async def test_a_text_of_no_use_is_asked_for_once_more(useless: Say | Call) -> None:
    model = ScriptedModel(useless, Say("They counted [#1-#4]."))

    assert await summarize_transcript(said(4), "", summariser_on(model)) == "They counted [#1-#4]."


async def test_a_text_of_no_use_is_never_returned() -> None:
    model = ScriptedModel(Say(ERROR_TEXT), Say(ERROR_TEXT))

    with pytest.raises(SummaryRejected):
        await summarize_transcript(said(4), "", summariser_on(model))


async def test_a_model_that_cannot_be_reached_is_asked_once_more_after_the_pause_it_names() -> None:
    away = ModelUnavailable("The model is away.", delay_seconds=0)
    model = ScriptedModel(Fail(away), Say("They counted [#1-#4]."), Fail(away), Fail(away))

    assert await summarize_transcript(said(4), "", summariser_on(model)) == "They counted [#1-#4]."
    with pytest.raises(ModelUnavailable, match="The model is away"):
        await summarize_transcript(said(4), "", summariser_on(model))


async def test_what_the_model_rejects_is_not_asked_again() -> None:
    model = ScriptedModel(Fail(ModelRejected("No such model.")))

    with pytest.raises(ModelRejected, match="No such model"):
        await summarize_transcript(said(4), "", summariser_on(model))


async def test_a_text_as_long_as_what_it_stands_for_is_an_error() -> None:
    model = ScriptedModel(Say("They counted further and further [#1]. " * 60))

    with pytest.raises(NotWorthIt, match="would replace only"):
        await summarize_transcript(said(2, words=30), "", summariser_on(model))


async def test_a_short_last_piece_does_not_make_a_long_text_worthless() -> None:
    long = "What was counted before stands here, at length. " * 22
    model = ScriptedModel(*(Say(long) for _ in range(3)), context_limit=2048)

    await summarize_transcript([*said(2, words=2000), *said(3, words=1)[-1:]], "", summariser_on(model))

    assert positions_read(model.requests[-1:]) == [3]


async def test_an_existing_summary_that_leaves_no_room_is_refused_before_anything_is_paid() -> None:
    model = ScriptedModel(context_limit=2048)

    with pytest.raises(InvalidInput, match=r"existing summary .* scripted .* larger window"):
        await summarize_transcript(said(4), "word " * 1500, summariser_on(model))


async def test_without_messages_the_summary_is_what_it_was() -> None:
    assert await summarize_transcript([], "as it was", summariser_on(ScriptedModel())) == "as it was"
