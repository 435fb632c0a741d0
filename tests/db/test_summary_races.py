"""Two workers on one session's summary at once: one wins, the other leaves no trace, and no message is touched."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

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
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import run_sql
from throughline.db.connection.notifier import Notifier
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.summaries.repository import SummaryRepository
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import LeaseLost, NotFound, SummaryConflict
from throughline.domain.message import Message
from throughline.domain.session import Session
from throughline.domain.summary import SummaryState, SummaryVersion

ROUNDS = 50


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
    assert prepared == ([] if parts is None else [parts[0]])
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


@pytest.mark.calm("a repeated adoption finds its own")
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
    assert (parts[0], [segment.through_position for segment in parts[1]]) == (prepared, [4])


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


T = TypeVar("T")


class ForgetfulTransactions(Transactions):
    """Commits each intent and runs it once more, as after an answer that was lost on its way."""

    async def run(self, intent: Callable[[Statements], Awaitable[T]]) -> T:
        await super().run(intent)
        return await super().run(intent)


@pytest.fixture
async def summaries(database_url: str) -> AsyncGenerator[SummaryRepository]:
    address = shared_address(database_url)
    pool = ConnectionPool(address, PoolConfig(size=2, timeout_seconds=5))
    yield SummaryRepository(ForgetfulTransactions(pool), Notifier(address))
    await pool.close()


@pytest.fixture
async def stored_repeated(conversation: Conversation) -> list[Message]:
    return await conversation.say(*"abcd")


async def _check(conversation: Conversation, session: Session, versions: list[int | None]) -> None:
    assert session == await conversation.reload()
    listed = (await conversation.database.summaries.list(conversation.owner_id, session.id)).items
    assert [version.version for version in listed] == versions


async def test_adopting_again_changes_nothing(
    conversation: Conversation, stored_repeated: list[Message], summaries: SummaryRepository
) -> None:
    adoption = await conversation.adoption(stored_repeated[0])

    session = await summaries.adopt_summary(adoption)

    await _check(conversation, session, [1])
    with pytest.raises(SummaryConflict):
        await summaries.adopt_summary(adoption)


async def test_preparing_again_and_adopting_that_again_changes_nothing(
    conversation: Conversation, stored_repeated: list[Message], summaries: SummaryRepository
) -> None:
    segment = await conversation.segment(stored_repeated[1])

    prepared = await summaries.prepare_summary(adoption_of(0, stored_repeated[1], segment))
    session = await summaries.adopt_prepared(conversation.session.id, prepared.id, 0)

    await _check(conversation, session, [1])
    with pytest.raises(SummaryConflict):
        await conversation.database.summaries.adopt_prepared(session.id, prepared.id, 0)


async def test_restoring_again_changes_nothing(
    conversation: Conversation, stored_repeated: list[Message], summaries: SummaryRepository
) -> None:
    await conversation.adopt(stored_repeated[0], "first")
    first = await summaries.latest(conversation.session.id)
    await conversation.adopt(stored_repeated[1], "second")
    assert first is not None

    session = await summaries.restore(conversation.owner_id, conversation.session.id, first.id)

    assert session.conversation_summary == "first"
    await _check(conversation, session, [3, 2, 1])


async def test_a_lost_lease_is_told_the_second_time_too(
    conversation: Conversation, stored_repeated: list[Message], summaries: SummaryRepository
) -> None:
    adoption = await conversation.adoption(stored_repeated[0])
    lease = (await conversation.start()).lease
    await conversation.end(lease)

    with pytest.raises(LeaseLost):
        await summaries.adopt_summary(adoption, lease)

    assert (await conversation.reload()).summary_version == 0
