"""What users ask of summaries: each wish reaches the model whole, what it costs is told, and going back stays."""

import re

import pytest

from fakes.compactions import asked, fill, open_summarising, prepare_one, store
from fakes.scripted_model import Say
from fakes.stage import Stage, open_stage, with_context
from throughline.context.policy import SummaryPolicy
from throughline.db.database import Database
from throughline.db.sessions.redaction import Redaction
from throughline.db.sessions.repository import SessionChange
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Role
from throughline.domain.prompt import ModelRequest
from throughline.domain.summary import SummaryState
from throughline.turn.summary.prepare import prepare_next
from throughline.turn.summary.reread import SummaryRequest
from throughline.turn.summary.summarize_now import estimate_summary, summarize_now

RULE = "Never forget the allergy to nuts."


def told(request: ModelRequest) -> Say:
    places = re.findall(r"^\[#(\d+)", asked(request), re.MULTILINE)
    return Say(f"## State\nRead [#{places[0]}-#{places[-1]}]." if places else "## State\nMerged.")


async def summarising(database: Database, **summary: object) -> Stage:
    stage = await open_summarising(database, **summary)  # type: ignore[arg-type]  # fields by name
    stage.model.by_request = told
    return stage


async def keep(stage: Stage, wish: str) -> None:
    change = SessionChange(summary_instructions=wish)
    await stage.database.sessions.update(stage.owner_id, stage.session.id, change)


async def prepared(stage: Stage) -> bool:
    return await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED) is not None


async def test_every_wish_is_told_whole(database: Database) -> None:
    agents = f"Keep all names. {'a' * 3_900}"
    policy = SummaryPolicy(instructions=agents)
    stage = await open_stage(database, agent=with_context(window=65_536, min_recent_messages=2, summary=policy))
    stage.model.by_request = told
    await fill(stage, 6)
    kept, wish = f"{'b' * 1_900} {RULE} {'b' * 1_900}", f"Keep the deadline. {'c' * 3_900}"
    await keep(stage, kept)

    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest(wish))

    assert done.outcome == "adopted"
    assert all(part in asked(stage.model.requests[0]) for part in (agents, kept, wish))


async def test_wishes_that_no_model_has_room_for_are_named_as_the_reason(database: Database) -> None:
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


async def test_a_wish_begins_where_it_was_told_to_also_behind_what_was_merged(database: Database) -> None:
    stage = await summarising(database, chunk_messages=8)
    stage.model.by_request = lambda request: Say(
        f"{told(request).text} {'Wished. ' if 'Keep it.' in asked(request) else ''}{'More of it. ' * 50}"
    )
    await fill(stage, 80)
    await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest())
    parts = await database.summaries.load_parts(stage.session.id, SummaryState.ADOPTED)
    assert parts is not None
    merged = max(parts.segments, key=lambda segment: segment.level)
    inside = merged.through_position - 3

    cost = await estimate_summary(stage.dependencies, await stage.reload(), SummaryRequest("Keep it.", inside))
    done = await summarize_now(stage.dependencies, await stage.reload(), SummaryRequest("Keep it.", inside))

    assert merged.level > 0
    assert inside - 8 <= cost.from_position <= inside
    assert done.outcome == "adopted", done.detail
    assert done.spent.calls <= 1.5 * cost.calls


async def test_large_tool_outputs_do_not_keep_a_wish_from_older_messages(database: Database) -> None:
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


async def test_what_is_prepared_is_forgotten_where_its_wishes_change(database: Database) -> None:
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


async def test_what_is_being_prepared_is_dropped_where_its_wishes_change(database: Database) -> None:
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
