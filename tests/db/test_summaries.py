"""Adopting summaries: by compare-and-set, forward only, and back only on an explicit restore."""

import asyncio
from uuid import UUID

import pytest

from app.db.database import Database
from app.domain.errors import LeaseLost, NotFound, SummaryConflict
from app.domain.ids import SummaryId
from app.domain.summary import SummaryState
from fakes.conversations import Conversation, adoption_of, open_conversation


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


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
    assert await conversation.database.summaries.count(session.id) == 1


async def test_the_cursor_never_goes_back_or_to_a_message_of_another_session(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b", "c")
    other = await open_conversation(conversation.database)
    foreign = (await other.say("x", "y", "z"))[2]
    await conversation.adopt(stored[1])

    for through in (stored[0], stored[1], foreign):
        assert not await conversation.tries_to_adopt(through, "worse", expected=1)

    session = await conversation.reload()
    assert (session.summary_through_position, session.conversation_summary) == (2, "summary")


async def test_who_lost_the_lease_adopts_nothing(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b")
    claimed = await conversation.start()
    adoption = adoption_of(conversation.session, 0, stored[0], "late")
    await conversation.database.runs.give_back(claimed.lease)

    with pytest.raises(LeaseLost):
        await conversation.database.messages.adopt_summary(adoption, claimed.lease)

    assert (await conversation.reload()).summary_version == 0


async def test_restoring_goes_back_as_a_new_version_and_spoils_adoptions_under_way(
    conversation: Conversation,
) -> None:
    stored = await conversation.say("a", "b", "c", "d")
    await conversation.adopt(stored[0], "first")
    await conversation.adopt(stored[2], "second")
    summaries = conversation.database.summaries
    first = (await summaries.list(conversation.owner_id, conversation.session.id))[1]

    session = await summaries.restore(conversation.owner_id, conversation.session.id, first.id)

    assert (session.conversation_summary, session.summary_through_position, session.summary_version) == ("first", 1, 3)
    versions = await summaries.list(conversation.owner_id, session.id)
    assert [(v.version, v.text, v.state) for v in versions] == [
        (3, "first", SummaryState.ADOPTED),
        (2, "second", SummaryState.SUPERSEDED),
        (1, "first", SummaryState.SUPERSEDED),
    ]
    with pytest.raises(SummaryConflict, match="version 2"):
        await conversation.adopt(stored[3], "too late", expected=2)


async def test_restoring_what_is_adopted_changes_nothing(conversation: Conversation) -> None:
    stored = await conversation.say("a", "b")
    adopted = await conversation.adopt(stored[0])
    summaries = conversation.database.summaries
    latest = await summaries.latest(conversation.session.id)
    assert latest is not None

    session = await summaries.restore(conversation.owner_id, conversation.session.id, latest.id)

    assert session == adopted
    assert await summaries.count(session.id) == 1


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
