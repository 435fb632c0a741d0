"""Prepared summaries: written ahead on the adopted one, one at a time, used or thrown away."""

import pytest

from fakes.conversations import Conversation, adoption_of, everything, open_conversation
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import NotFound, SummaryConflict
from throughline.domain.message import Message
from throughline.domain.summary import SummaryState


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.fixture
async def stored(conversation: Conversation) -> list[Message]:
    return await conversation.say(*"abcdefgh")


async def test_preparing_leaves_the_session_as_it_is(conversation: Conversation, stored: list[Message]) -> None:
    before = await conversation.reload()

    prepared = await conversation.prepare(stored[3], "ahead")

    assert (prepared.version, prepared.state, prepared.text) == (None, SummaryState.PREPARED, "ahead")
    assert await conversation.reload() == before
    summaries = conversation.database.summaries
    assert await summaries.latest(before.id) is None
    assert (await summaries.list(conversation.owner_id, before.id)).items == (prepared,)
    parts = await summaries.load_parts(before.id, SummaryState.PREPARED)
    assert parts is not None
    assert (parts.version, [segment.through_position for segment in parts.segments]) == (prepared, [4])


async def test_a_context_comes_with_what_is_prepared_on_its_summary(
    conversation: Conversation, stored: list[Message]
) -> None:
    load = conversation.database.messages.load_context
    await conversation.adopt(stored[0])
    version = await conversation.prepare(stored[3], "ahead")

    prepared = (await load(conversation.session.id, None, 100)).prepared
    await conversation.adopt(stored[1])
    later = (await load(conversation.session.id, None, 100)).prepared

    assert prepared is not None
    assert (prepared.id, prepared.base_version, prepared.created_at) == (version.id, 1, version.created_at)
    assert (prepared.text, prepared.token_count, prepared.through_position, prepared.model) == (
        "ahead",
        5,
        4,
        "offline",
    )
    assert later is None


async def test_a_further_one_takes_the_place_of_the_last(conversation: Conversation, stored: list[Message]) -> None:
    first = await conversation.prepare(stored[3])

    second = await conversation.prepare(stored[5])

    summaries, session_id = conversation.database.summaries, conversation.session.id
    assert (await summaries.list(conversation.owner_id, session_id)).items == (second,)
    for through in (stored[4], stored[5]):
        with pytest.raises(SummaryConflict, match="position 6 is prepared"):
            await conversation.prepare(through, "no further")
    with pytest.raises(SummaryConflict, match="was deleted or replaced"):
        await summaries.adopt_prepared(session_id, first.id, 0)
    assert (await conversation.reload()).summary_version == 0


async def test_adopting_it_moves_text_cursor_and_version_and_gives_it_a_number(
    conversation: Conversation, stored: list[Message]
) -> None:
    await conversation.adopt(stored[0], "first")
    prepared = await conversation.prepare(stored[3], "ahead")
    summaries, session_id = conversation.database.summaries, conversation.session.id

    session = await summaries.adopt_prepared(session_id, prepared.id, 1)

    assert session == await conversation.reload()
    assert (session.conversation_summary, session.summary_tokens, session.summary_version) == ("ahead", 5, 2)
    assert (session.summary_through_id, session.summary_through_position) == (stored[3].id, 4)
    latest = await summaries.latest(session_id)
    assert latest is not None
    assert (latest.id, latest.version, latest.segment_ids) == (prepared.id, 2, prepared.segment_ids)
    assert [version.state for version in (await summaries.list(conversation.owner_id, session_id)).items] == [
        SummaryState.ADOPTED,
        SummaryState.SUPERSEDED,
    ]


async def test_one_that_builds_on_an_older_summary_is_never_used(
    conversation: Conversation, stored: list[Message], database_url: str
) -> None:
    prepared = await conversation.prepare(stored[3])
    await conversation.adopt(stored[0])
    before = await everything(database_url)

    summaries, session_id = conversation.database.summaries, conversation.session.id
    for expected in (0, 1):
        with pytest.raises(SummaryConflict):
            await summaries.adopt_prepared(session_id, prepared.id, expected)
    for through in (stored[0], stored[3]):
        with pytest.raises(SummaryConflict):
            await conversation.database.summaries.prepare_summary(
                adoption_of(0, through, await conversation.segment(through, "prepared"))
            )
    assert await summaries.load_parts(session_id, SummaryState.PREPARED) is None
    assert (await everything(database_url))[0][0] == before[0][0]
    assert (await summaries.list(conversation.owner_id, session_id)).items == (await summaries.latest(session_id),)


async def test_nobody_adopts_the_prepared_summary_of_another_session(
    conversation: Conversation, stored: list[Message], database_url: str
) -> None:
    prepared = await conversation.prepare(stored[3])
    other = await open_conversation(conversation.database)
    await other.say(*"wxyz")
    before = await everything(database_url)

    adopt_prepared = conversation.database.summaries.adopt_prepared
    with pytest.raises(SummaryConflict):
        await adopt_prepared(other.session.id, prepared.id, 0)
    with pytest.raises(NotFound):
        await adopt_prepared(SessionId(conversation.owner_id), prepared.id, 0)

    assert await everything(database_url) == before
