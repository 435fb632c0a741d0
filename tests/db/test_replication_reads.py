"""Reads on a real standby that gets everything late: what is missing is told, and its death costs nobody an answer."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from fakes.conversations import Conversation, open_conversation
from fakes.replicas import ReplicaProcess, opened
from fakes.replication import Replication, replicating
from fakes.waiting import HANG_SECONDS
from throughline.db.connection.migrations import upgrade
from throughline.db.reads import Reading, ReadRepositories
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import Page, ProcessId
from throughline.domain.message import Message
from throughline.domain.recall import HistoryQuery
from throughline.domain.service_status import Process, ProcessKind, ProcessState
from throughline.domain.usage_report import UsageKey, UsageQuery

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(900),
    pytest.mark.calm("a conflict leaves the answer to the primary"),
]
LAG_SECONDS = 1.0
PROCESS = Process(ProcessId(UUID(int=1)), ProcessKind.SERVE, "host:1", "0.1.0")
STATE = ProcessState(concurrency=1, open_turns=0, jobs_in_hand=0, is_claiming=True, is_listening=True)


@pytest.fixture
async def replication() -> AsyncGenerator[Replication]:
    async with replicating(lag_seconds=LAG_SECONDS) as servers:
        await upgrade(servers.url)
        await servers.wait_for_standby(synchronous=False)
        yield servers


@pytest.fixture
async def process(replication: Replication) -> AsyncGenerator[ReplicaProcess]:
    async with opened(replication.url, replication.url_of(replication.standby)) as found:
        yield found


@pytest.fixture
async def conversation(process: ReplicaProcess, replication: Replication) -> Conversation:
    found = await open_conversation(process.database)
    await replication.wait_for_standby(synchronous=False)
    return found


async def page(reading: Reading, conversation: Conversation, after: int | None = None) -> Page[Message]:
    async def read(each: ReadRepositories) -> Page[Message]:
        query = MessageQuery(after=after, limit=2)
        return await each.messages.list_messages(conversation.owner_id, conversation.session.id, query)

    return await reading.run(read)


async def complete_until(process: ReplicaProcess, conversation: Conversation) -> datetime:
    reading = process.begin()
    await page(reading, conversation)
    age = reading.tell_age()
    assert age is not None
    assert age.as_of is not None
    return age.as_of


async def test_what_a_late_standby_lacks_is_newer_than_it_says(
    process: ReplicaProcess, conversation: Conversation, replication: Replication
) -> None:
    await conversation.say("Hello")
    said_at = datetime.now(UTC)
    reading = process.begin()

    before = await page(reading, conversation)
    told = reading.tell_age()
    await replication.wait_for_standby(synchronous=False)
    after = await page(process.begin(), conversation)

    assert before.items == ()
    assert told is not None
    assert told.as_of is not None
    assert told.as_of < said_at
    assert [message.content for message in after.items] == ["Hello"]
    assert process.reads == {"answers": 2}


async def test_on_an_idle_primary_heartbeats_show_that_the_standby_is_current(
    process: ReplicaProcess, conversation: Conversation
) -> None:
    before = await complete_until(process, conversation)
    idle_at = datetime.now(UTC)

    async with asyncio.timeout(HANG_SECONDS):
        while await complete_until(process, conversation) < idle_at:
            await process.database.processes.heartbeat(PROCESS, STATE, up_seconds=1.0)
            await asyncio.sleep(0.1)

    assert before < idle_at


async def test_a_standby_that_dies_leaves_the_rest_of_an_export_to_the_primary(
    process: ReplicaProcess, conversation: Conversation, replication: Replication
) -> None:
    await conversation.say("one", "two", "three")
    await replication.wait_for_standby(synchronous=False)
    reading = process.begin()

    first = await page(reading, conversation)
    replication.standby.kill()
    second = await page(reading, conversation, int(first.next_cursor or 0))
    third = await page(process.begin(), conversation)

    assert [message.content for message in (*first.items, *second.items)] == ["one", "two", "three"]
    assert third == first
    assert process.reads == {"answers": 1, "away": 2}


async def test_reports_and_searches_run_on_a_standby(
    process: ReplicaProcess, conversation: Conversation, replication: Replication
) -> None:
    await conversation.say("The gateway listens on port 8443.")
    await replication.wait_for_standby(synchronous=False)
    now = datetime.now(UTC)
    query = HistoryQuery("gateway", 5, today=now.date())
    asked = UsageQuery(conversation.owner_id, now.replace(year=now.year - 1), now, (UsageKey.DAY,))
    reading = process.begin()

    found = await reading.run(lambda each: each.history.search(conversation.owner_id, None, query))
    await reading.run(lambda each: each.usage.report(asked))
    session = await reading.run(lambda each: each.sessions.get(conversation.owner_id, conversation.session.id))

    assert [hit.message.content for hit in found.hits] == ["The gateway listens on port 8443."]
    assert session.id == conversation.session.id
    assert process.reads == {"answers": 3}


async def test_both_servers_may_be_named_and_the_standby_is_preferred(replication: Replication) -> None:
    both = f"postgresql://throughline@{replication.primary.place},{replication.standby.place}"
    async with opened(replication.url, f"{both}/{replication.database}?sslmode=disable") as process:
        conversation = await open_conversation(process.database)
        await replication.wait_for_standby(synchronous=False)

        await complete_until(process, conversation)
        replication.standby.kill()
        await process.database.processes.heartbeat(PROCESS, STATE, up_seconds=1.0)
        reading = process.begin()
        await page(reading, conversation)

        assert reading.tell_age() is None  # the primary, which is current
        assert process.reads == {"answers": 2}
