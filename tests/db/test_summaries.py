"""Adopting summaries: by compare-and-set, forward only, and back only on an explicit restore."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from fakes.conversations import Conversation, adoption_of, everything, open_conversation, segment_of
from fakes.raw_sql import run_sql
from throughline.db.summaries.segments import _kept_facts_from
from throughline.domain.basic_types import SummaryId
from throughline.domain.errors import InvalidInput, LeaseLost, NotFound, SummaryConflict
from throughline.domain.message import Role
from throughline.domain.summary import FactKind, KeptFact, SummaryState


async def test_adopting_moves_text_cursor_and_version_together(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b", "c")

    session = await conversation.adopt(stored[1], "a and b")

    assert session == await conversation.reload()
    assert (session.conversation_summary, session.summary_tokens) == ("a and b", 5)
    assert (session.summary_through_id, session.summary_through_position, session.summary_version) == (
        stored[1].id,
        2,
        1,
    )
    latest = await conversation.database.summaries.latest(session.id)
    assert latest is not None
    assert (latest.version, latest.state, latest.text, latest.through_position) == (
        1,
        SummaryState.ADOPTED,
        "a and b",
        2,
    )


async def test_of_racers_with_the_same_version_one_wins(conversation: Conversation) -> None:
    stored = await conversation.say(*"abcdefgh")

    won = await asyncio.gather(
        *(conversation.tries_to_adopt(message, message.id.hex, expected=0) for message in stored)
    )

    assert sum(won) == 1
    session = await conversation.reload()
    assert (session.summary_version, session.summary_through_position) == (1, won.index(True) + 1)
    assert session.conversation_summary == stored[won.index(True)].id.hex
    assert len((await conversation.database.summaries.list(conversation.owner_id, session.id)).items) == 1


async def test_the_cursor_never_goes_back(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b", "c")
    await conversation.adopt(stored[1])

    for through in stored[:2]:
        assert not await conversation.tries_to_adopt(through, "worse", expected=1)

    session = await conversation.reload()
    assert (session.summary_through_position, session.conversation_summary) == (2, "summary")


async def test_who_lost_the_lease_writes_nothing(conversation: Conversation, database_url: str) -> None:
    stored = await conversation.say("a", "b")
    segment = await conversation.segment(stored[0])
    prepared = await conversation.prepare(stored[0])
    late = (await conversation.start()).lease
    await conversation.database.runs.give_back(late)
    before = await everything(database_url)

    summaries, session_id = conversation.database.summaries, conversation.session.id
    for write in (
        summaries.save_segment(session_id, segment_of(stored[1], "late"), late),
        summaries.adopt_summary(adoption_of(0, stored[0], segment), late),
        summaries.adopt_prepared(session_id, prepared.id, 0, late),
        summaries.save_view(session_id, {"keep_last": 2}, 0, late),
    ):
        with pytest.raises(LeaseLost):
            await write

    assert await everything(database_url) == before


async def test_a_lease_serves_its_own_session_only(conversation: Conversation, database_url: str) -> None:
    stored = await conversation.say("a")
    other = await open_conversation(conversation.database)
    lease = (await other.start()).lease
    before = await everything(database_url)

    summaries, session_id = conversation.database.summaries, conversation.session.id
    for write in (
        summaries.save_segment(session_id, segment_of(stored[0], "foreign"), lease),
        summaries.save_view(session_id, {"keep_last": 2}, 0, lease),
    ):
        with pytest.raises(LeaseLost):
            await write

    assert await everything(database_url) == before


async def test_the_holder_of_the_lease_writes_all_of_it(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b", "c")
    lease = (await conversation.start()).lease
    summaries, session_id = conversation.database.summaries, conversation.session.id

    segment = await summaries.save_segment(session_id, segment_of(stored[0], "first"), lease)
    session = await summaries.adopt_summary(adoption_of(0, stored[0], segment), lease)
    prepared = await conversation.prepare(stored[1])
    session = await summaries.adopt_prepared(session_id, prepared.id, session.summary_version, lease)
    assert await summaries.save_view(session_id, {"keep_last": 2}, session.summary_version, lease)

    session = await conversation.reload()
    assert (session.summary_version, session.summary_through_position, session.view_state) == (2, 2, {"keep_last": 2})


async def test_segments_that_leave_a_gap_overlap_or_are_not_the_sessions_are_refused(
    conversation: Conversation, database_url: str
) -> None:
    stored = await conversation.say(*"abcdef")
    one = await conversation.segment(stored[1])
    two = await conversation.segment(stored[3], first=3)
    late = await conversation.segment(stored[5], first=5)
    wide = await conversation.segment(stored[3], first=2)
    other = await open_conversation(conversation.database)
    foreign = await other.segment((await other.say(*"wxyz"))[3], first=3)
    before = await everything(database_url)

    for segments, through, why in (
        ((), 3, "end with message None at 0"),
        ((two,), 3, "starts at 3"),
        ((one, late), 5, "starts at 5"),
        ((one, wide), 3, "starts at 2"),
        ((two, one), 3, "starts at 3"),
        ((one, two, two), 3, "starts at 3"),
        ((one, foreign), 3, "not the session's"),
        ((one, two), 4, "at 4"),
        ((one, two), 2, "at 4"),
        ((one, two, late), 3, "at 6"),
    ):
        adoption = adoption_of(0, stored[through], *segments)
        for write in (conversation.database.summaries.adopt_summary, conversation.database.summaries.prepare_summary):
            with pytest.raises(ValueError, match=why):
                await write(adoption)

    assert await everything(database_url) == before


async def test_a_summary_ends_with_a_message_of_its_session(conversation: Conversation, database_url: str) -> None:
    stored = await conversation.say("a", "b")
    segment = await conversation.segment(stored[1])
    other = await open_conversation(conversation.database)
    foreign = (await other.say("x", "y"))[1]
    before = await everything(database_url)

    with pytest.raises(ValueError, match=str(foreign.id)):
        await conversation.database.summaries.adopt_summary(
            replace(adoption_of(0, stored[1], segment), through_id=foreign.id)
        )
    with pytest.raises(NotFound, match=str(foreign.id)):
        await conversation.segment(foreign, "foreign")
    with pytest.raises(NotFound, match="at position 1 of"):
        await conversation.segment(replace(stored[1], position=1))

    assert await everything(database_url) == before


async def test_segments_and_facts_of_a_version_come_back_as_they_were_given(conversation: Conversation) -> None:
    stored = await conversation.say(*"abcd")
    merged = await conversation.segment(stored[1], "merged", level=1)
    leaf = await conversation.segment(stored[3], "leaf", first=3)
    kept = (
        KeptFact(FactKind.INSTRUCTION, 'Always answer in "French"\n\u2028', 1),
        KeptFact(FactKind.VALUE, "7", 2, subject="count", author="Ana", replaced_by=4, chosen=2, passed_over=1),
        KeptFact(FactKind.COMMAND, "/srv/données/\U0001f600.txt", 4),
        *(KeptFact(FactKind.ERROR, f"Error: {role}", 4, role) for role in Role),
    )

    await conversation.database.summaries.adopt_summary(adoption_of(0, stored[3], merged, leaf, kept_facts=kept))

    parts = await conversation.database.summaries.load_parts(conversation.session.id, SummaryState.ADOPTED)
    assert parts is not None
    version, segments = parts
    assert segments == (merged, leaf)
    assert [(segment.level, segment.from_position) for segment in segments] == [(1, 1), (0, 3)]
    assert (version.segment_ids, version.kept_facts) == ((merged.id, leaf.id), kept)
    assert version == await conversation.database.summaries.latest(conversation.session.id)


async def test_facts_of_a_kind_this_version_does_not_know_are_left_aside(
    conversation: Conversation, database_url: str
) -> None:
    stored = await conversation.say("a")
    await conversation.adopt(stored[0])
    entries = '[["mood", "fine", 1], ["url cat", "https://c.d", 1], ["url", "https://a.b", 1]]'
    await run_sql(database_url, f"update summary_versions set kept_facts = '{entries}'")

    latest = await conversation.database.summaries.latest(conversation.session.id)

    assert latest is not None
    assert latest.kept_facts == (KeptFact(FactKind.IDENTIFIER, "https://a.b", 1),)


async def test_only_the_version_in_use_and_the_prepared_one_have_parts(conversation: Conversation) -> None:
    load_parts = conversation.database.summaries.load_parts

    assert await load_parts(conversation.session.id, SummaryState.ADOPTED) is None
    assert await load_parts(conversation.session.id, SummaryState.PREPARED) is None
    with pytest.raises(ValueError, match="superseded"):
        await load_parts(conversation.session.id, SummaryState.SUPERSEDED)


async def test_a_summary_of_a_session_that_is_gone_is_not_found(conversation: Conversation) -> None:
    stored = await conversation.say("a")
    adoption = await conversation.adoption(stored[0])
    await conversation.database.sessions.delete(conversation.owner_id, conversation.session.id)

    for write in (
        conversation.database.summaries.adopt_summary(adoption),
        conversation.database.summaries.prepare_summary(adoption),
        conversation.segment(stored[0], "again"),
    ):
        with pytest.raises(NotFound):
            await write
    assert not await conversation.database.summaries.save_view(conversation.session.id, {}, 0)


async def test_a_view_is_kept_only_beside_the_summary_it_was_made_on(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b")
    save_view = conversation.database.summaries.save_view

    assert await save_view(conversation.session.id, {"keep_last": 5}, 0)
    await conversation.adopt(stored[0])
    assert not await save_view(conversation.session.id, {"keep_last": 2}, 0)

    assert (await conversation.reload()).view_state == {"keep_last": 5}


async def test_a_summary_that_was_not_worth_it_is_noted_beside_what_a_turn_did_meanwhile(
    conversation: Conversation,
) -> None:
    stored = await conversation.say("a", "b")
    summaries, session_id = conversation.database.summaries, conversation.session.id
    await summaries.save_view(session_id, {"keep_last": 5, "skipped_through_position": 1}, 0)

    await summaries.save_skipped(session_id, 2, 0)
    await conversation.adopt(stored[0])
    await summaries.save_skipped(session_id, 3, 0)

    assert (await conversation.reload()).view_state == {"keep_last": 5, "skipped_through_position": 2}


async def test_restoring_goes_back_as_a_new_version_and_spoils_adoptions_under_way(
    conversation: Conversation,
) -> None:
    stored = await conversation.say("a", "b", "c", "d")
    await conversation.adopt(stored[0], "first")
    await conversation.adopt(stored[2], "second")
    summaries = conversation.database.summaries
    first = (await summaries.list(conversation.owner_id, conversation.session.id)).items[1]

    session = await summaries.restore(conversation.owner_id, conversation.session.id, first.id)

    assert (session.conversation_summary, session.summary_through_position, session.summary_version) == ("first", 1, 3)
    versions = (await summaries.list(conversation.owner_id, session.id)).items
    assert versions[0].segment_ids == first.segment_ids
    assert [(v.version, v.text, v.state) for v in versions] == [
        (3, "first", SummaryState.ADOPTED),
        (2, "second", SummaryState.SUPERSEDED),
        (1, "first", SummaryState.SUPERSEDED),
    ]
    with pytest.raises(SummaryConflict, match="version 2"):
        await conversation.adopt(stored[3], "too late", expected=2)


async def test_restoring_begins_the_view_again_and_forgets_what_was_prepared(conversation: Conversation) -> None:
    stored = await conversation.say(*"abcd")
    await conversation.adopt(stored[0], "first")
    await conversation.adopt(stored[1], "second")
    summaries, session_id = conversation.database.summaries, conversation.session.id
    await summaries.save_view(session_id, {"keep_last": 2}, 2)
    prepared = await conversation.prepare(stored[3])
    first = (await summaries.list(conversation.owner_id, session_id)).items[-1]

    session = await summaries.restore(conversation.owner_id, session_id, first.id)

    assert session.view_state == {"skipped_through_position": 4, "restored_at_position": 4, "summary_position": 1}
    assert session.summary_version == 3
    assert session == await conversation.reload()
    assert [v.version for v in (await summaries.list(conversation.owner_id, session_id)).items] == [3, 2, 1]
    with pytest.raises(SummaryConflict):
        await summaries.adopt_prepared(session_id, prepared.id, 3)


async def test_what_was_only_prepared_cannot_be_restored(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b")
    prepared = await conversation.prepare(stored[0])

    with pytest.raises(InvalidInput, match="never in use"):
        await conversation.database.summaries.restore(conversation.owner_id, conversation.session.id, prepared.id)


async def test_restoring_what_is_adopted_changes_nothing(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b")
    adopted = await conversation.adopt(stored[0])
    summaries = conversation.database.summaries
    latest = await summaries.latest(conversation.session.id)
    assert latest is not None

    session = await summaries.restore(conversation.owner_id, conversation.session.id, latest.id)

    assert session == adopted
    assert len((await summaries.list(conversation.owner_id, session.id)).items) == 1


async def test_an_unknown_or_foreign_summary_is_not_found(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b")
    await conversation.adopt(stored[0])
    summaries = conversation.database.summaries
    latest = await summaries.latest(conversation.session.id)
    assert latest is not None
    stranger = await open_conversation(conversation.database, "mallory")

    for owner, session, summary in (
        (conversation.owner_id, conversation.session.id, SummaryId(UUID(int=1))),
        (stranger.owner_id, stranger.session.id, latest.id),
        (stranger.owner_id, conversation.session.id, latest.id),
    ):
        with pytest.raises(NotFound):
            await summaries.restore(owner, session, summary)


def test_what_an_older_or_a_newer_version_wrote_is_read_as_far_as_it_is_known() -> None:
    older = [["path tool", "a.py", 1], ["left_out", "3", 2]]
    newer = [["value", "5", 3, "user", "port", "", 0, 0, 0, True, False, "unknown"], ["mood", "glad", 4]]

    assert _kept_facts_from([*older, *newer]) == (
        KeptFact(FactKind.IDENTIFIER, "a.py", 1, Role.TOOL),
        KeptFact(FactKind.VALUE, "5", 3, Role.USER, "port"),
    )
