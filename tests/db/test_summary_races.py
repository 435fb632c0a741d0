"""Two workers on one session's summary at once: one wins, the other leaves no trace, and no message is touched."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable

import pytest

from fakes.conversations import (
    Conversation,
    adoption_of,
    everything,
    is_loaded_whole,
    open_conversation,
    segment_of,
    user_message,
)
from fakes.pooler import urls_of
from fakes.raw_sql import run_sql
from throughline.db.database import Database, DatabaseConfig
from throughline.db.summaries.repository import SummaryRepository
from throughline.domain.errors import SummaryConflict
from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.domain.summary import SummaryState, SummaryVersion

ROUNDS = 50


@pytest.fixture
async def conversation(database: Database) -> Conversation:
    return await open_conversation(database)


@pytest.fixture
async def other_worker(database_url: str) -> AsyncGenerator[SummaryRepository]:
    """The same database as another process sees it: with connections of its own."""
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2))
    yield opened.summaries
    await opened.close()


async def _outcomes(*tries: Awaitable[object]) -> list[object]:
    """Run all at once; a conflict is an outcome, everything else that goes wrong is raised."""

    async def outcome(one: Awaitable[object]) -> object:
        try:
            return await one
        except SummaryConflict as conflict:
            return conflict

    return await asyncio.gather(*(outcome(one) for one in tries))


async def _check_consistent(conversation: Conversation) -> Session:
    """The session says what its one adopted version says, and nothing is prepared on an older one."""
    session = await conversation.reload()
    versions = (await conversation.database.summaries.list(conversation.owner_id, session.id)).items
    adopted = [version for version in versions if version.state is SummaryState.ADOPTED]
    assert [version.version for version in adopted] == ([session.summary_version] if session.summary_version else [])
    for version in adopted:
        assert (version.text, version.token_count) == (session.conversation_summary, session.summary_tokens)
        assert (version.through_id, version.through_position) == (
            session.summary_through_id,
            session.summary_through_position,
        )
    numbers = [version.version for version in versions if version.version is not None]
    assert numbers == list(range(session.summary_version, 0, -1))
    prepared = [version for version in versions if version.state is SummaryState.PREPARED]
    parts = await conversation.database.summaries.load_parts(session.id, SummaryState.PREPARED)
    assert prepared == ([] if parts is None else [parts.version])
    return session


@pytest.mark.slow
async def test_of_two_that_adopt_at_once_one_wins_and_the_other_leaves_no_trace(
    conversation: Conversation, other_worker: SummaryRepository, database_url: str
) -> None:
    stored = await conversation.say(*("text" for _ in range(ROUNDS)))
    messages_before = (await everything(database_url))[0][0]

    for n in range(ROUNDS):
        segment = await conversation.segment(stored[n], "one")
        other = await conversation.segment(stored[n], "other")
        tries = [
            conversation.database.summaries.adopt_summary(adoption_of(n, stored[n], segment)),
            other_worker.adopt_summary(adoption_of(n, stored[n], other)),
        ]
        outcomes = await _outcomes(*(tries if n % 2 else reversed(tries)))

        won = [outcome for outcome in outcomes if isinstance(outcome, Session)]
        assert len(won) == 1
        assert await _check_consistent(conversation) == won[0]
        assert won[0].summary_version == n + 1

    assert (await everything(database_url))[0][0] == messages_before


@pytest.mark.slow
async def test_what_is_prepared_while_another_adopts_is_not_left_behind(
    conversation: Conversation, other_worker: SummaryRepository, database_url: str
) -> None:
    stored = await conversation.say(*("text" for _ in range(ROUNDS + 1)))
    messages_before = (await everything(database_url))[0][0]

    for n in range(ROUNDS):
        further = await conversation.segment(stored[n + 1])
        segment = await conversation.segment(stored[n])
        tries = [
            other_worker.prepare_summary(adoption_of(n, stored[n + 1], further)),
            conversation.database.summaries.adopt_summary(adoption_of(n, stored[n], segment)),
        ]
        outcomes = await _outcomes(*(tries if n % 2 else reversed(tries)))

        assert sum(isinstance(outcome, Session) for outcome in outcomes) == 1
        session = await _check_consistent(conversation)
        assert session.summary_version == n + 1
        assert await conversation.database.summaries.load_parts(session.id, SummaryState.PREPARED) is None

    assert (await everything(database_url))[0][0] == messages_before


async def test_a_prepared_summary_is_adopted_once(conversation: Conversation, other_worker: SummaryRepository) -> None:
    stored = await conversation.say(*("text" for _ in range(20)))

    for n in range(20):
        prepared = await conversation.prepare(stored[n])
        outcomes = await _outcomes(
            conversation.database.summaries.adopt_prepared(conversation.session.id, prepared.id, n),
            other_worker.adopt_prepared(conversation.session.id, prepared.id, n),
        )

        assert sum(isinstance(outcome, Session) for outcome in outcomes) == 1
        assert (await _check_consistent(conversation)).summary_version == n + 1


async def test_of_a_prepared_summary_and_a_new_one_that_are_adopted_at_once_one_wins(
    conversation: Conversation, other_worker: SummaryRepository
) -> None:
    stored = await conversation.say(*("text" for _ in range(41)))

    for n in range(20):
        prepared = await conversation.prepare(stored[2 * n + 1], "ahead")
        segment = await conversation.segment(stored[2 * n])
        outcomes = await _outcomes(
            conversation.database.summaries.adopt_prepared(conversation.session.id, prepared.id, n),
            other_worker.adopt_summary(adoption_of(n, stored[2 * n], segment)),
        )

        won = [outcome for outcome in outcomes if isinstance(outcome, Session)]
        assert len(won) == 1
        assert await _check_consistent(conversation) == won[0]


async def test_of_a_restore_and_an_adoption_at_once_the_later_one_sees_the_first(
    conversation: Conversation, other_worker: SummaryRepository, database_url: str
) -> None:
    stored = await conversation.say(*("text" for _ in range(25)))
    first = await _adopt_first(conversation, stored)
    messages_before = (await everything(database_url))[0][0]

    for n in range(1, 21):
        before = await conversation.reload()
        through = stored[min(before.summary_through_position + 1, 24)]
        segment = await conversation.segment(through, f"round {n}")
        outcomes = await _outcomes(
            other_worker.restore(conversation.owner_id, conversation.session.id, first.id),
            conversation.database.summaries.adopt_summary(adoption_of(before.summary_version, through, segment)),
        )

        assert isinstance(outcomes[0], Session)
        session = await _check_consistent(conversation)
        was_adopted = isinstance(outcomes[1], Session)
        is_restored_last = session.summary_through_position == first.through_position
        assert was_adopted or is_restored_last

    assert (await everything(database_url))[0][0] == messages_before


async def _adopt_first(conversation: Conversation, stored: list[Message]) -> SummaryVersion:
    await conversation.adopt(stored[0], "first")
    first = await conversation.database.summaries.latest(conversation.session.id)
    assert first is not None
    await conversation.adopt(stored[1], "second")
    return first


async def test_a_view_is_never_kept_beside_a_summary_it_was_not_made_on(
    conversation: Conversation, other_worker: SummaryRepository
) -> None:
    stored = await conversation.say(*("text" for _ in range(20)))
    session_id = conversation.session.id

    for n in range(20):
        segment = await conversation.segment(stored[n])
        saved, _ = await _outcomes(
            other_worker.save_view(session_id, {"keep_last": n}, n),
            conversation.database.summaries.adopt_summary(adoption_of(n, stored[n], segment)),
        )
        is_kept = (await conversation.reload()).view_state == {"keep_last": n}

        assert is_kept is saved
        assert not await other_worker.save_view(session_id, {"keep_last": -1}, n)


async def test_writers_of_the_same_segment_all_get_the_one_that_is_stored(
    conversation: Conversation, other_worker: SummaryRepository, database_url: str
) -> None:
    stored = await conversation.say("a", "b")
    new = segment_of(stored[0], "same")

    writers = (conversation.database.summaries, other_worker)
    saved = await asyncio.gather(*(writers[n % 2].save_segment(conversation.session.id, new) for n in range(10)))

    assert len(set(saved)) == 1
    assert await run_sql(database_url, "select count(*) from summaries") == [(1,)]
    found = await other_worker.find_segment(conversation.session.id, new.read_hash)
    assert found == saved[0]
    assert (await conversation.reload()).summary_through_position == 0
    other = await open_conversation(conversation.database)
    assert await other_worker.find_segment(other.session.id, new.read_hash) is None


async def test_messages_between_loading_and_adopting_are_neither_skipped_nor_covered(
    conversation: Conversation,
) -> None:
    await conversation.say(*("text" for _ in range(10)))
    loaded = await conversation.database.messages.load_context(conversation.session.id, None, 1000)
    adoption = await conversation.adoption(loaded.history[-1])
    claimed = await conversation.start()
    append, n = conversation.database.messages.append_message, 40

    await asyncio.gather(
        *(append(claimed.lease, f"step:{m}", user_message("new")) for m in range(n)),
        conversation.database.summaries.adopt_summary(adoption, claimed.lease),
    )

    later = await conversation.database.messages.load_context(conversation.session.id, None, 1000)
    assert later.session.summary_through_position == 10
    assert [message.position for message in later.history] == list(range(11, 11 + n))
    assert is_loaded_whole(later)
