"""Rows kept between the turns of a session: whatever happens to it, what is loaded is what would be loaded again."""

import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest

from fakes.conversations import (
    Conversation,
    adoption_of,
    answer_message,
    open_conversation,
    segment_of,
    user_message,
)
from fakes.event_log import MESSAGE_ID
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import run_sql
from throughline.db.connection.pool import ConnectionPool, PoolConfig, Row, Statement
from throughline.db.connection.transactions import Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.db.sessions.load_context import Wanted
from throughline.db.sessions.message_cache import MOST_NEW, MessageCache, load_known_context
from throughline.db.sessions.messages import PAGE_BYTES, MessageQuery
from throughline.db.sessions.redaction import MARKER, Redaction
from throughline.domain.basic_types import RunId, SessionId
from throughline.domain.errors import NotFound
from throughline.domain.events import EventType, NewEvent, ReasoningDelta
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall
from throughline.domain.reasoning import Reasoning
from throughline.domain.recall import HistoryQuery
from throughline.domain.run import ClaimedRun
from throughline.domain.summary import Adoption
from throughline.domain.summary import Conversation as Loaded

LIMITS = (1, 70, 700, 20_000)


@dataclass
class Processes:
    """Two processes that keep rows and one that keeps none, on one database."""

    keeping: tuple[Database, Database]
    plain: Database

    async def check(self, chance: random.Random, session_id: SessionId, run_ids: Sequence[RunId | None]) -> None:
        """Load in one process that keeps rows, or in both, and compare with what the other one loads."""
        for database in chance.sample(self.keeping, chance.choice((1, 1, 2))):
            run_id, most = chance.choice(run_ids), chance.choice(LIMITS)
            assert await load(database, session_id, run_id, most) == await load(self.plain, session_id, run_id, most)


@pytest.fixture
async def processes(database_url: str) -> AsyncGenerator[Processes]:
    async with AsyncExitStack() as stack:
        opened = []
        for most in (64_000_000, 64_000_000, 0):
            config = DatabaseConfig(**urls_of(database_url), pool_size=2, loaded_rows_bytes=most)
            opened.append(await Database.open(config))
            stack.push_async_callback(opened[-1].close)
        yield Processes((opened[0], opened[1]), opened[2])


async def load(database: Database, session_id: SessionId, run_id: RunId | None, max_tokens: int) -> Loaded:
    return await database.messages.load_context(session_id, run_id, max_tokens)


@dataclass
class Story:
    """Anything that may happen to a session, in either process, by chance."""

    processes: Processes
    conversation: Conversation
    chance: random.Random
    run_ids: list[RunId | None] = field(default_factory=lambda: [None])
    running: ClaimedRun | None = None
    steps: int = 0

    async def go_on(self) -> None:
        """Do one thing."""
        self.conversation = replace(self.conversation, database=self.chance.choice(self.processes.keeping))
        acts = (self.say, self.say, self.begin_or_end, self.own, self.pin, self.unpin, self.adopt, self.restore)
        await self.chance.choice((*acts, self.redact))()

    async def say(self) -> None:
        if self.running is None:
            texts = [f"text {n}" for n in range(self.chance.choice((1, 2, 5, 70)))]
            await self.conversation.say(*texts, tokens=self.chance.choice((1, 10, 100, 5000)))

    async def begin_or_end(self) -> None:
        if self.running is None:
            self.running = await self.conversation.start()
            self.run_ids.append(self.running.run.id)
        else:
            await self.conversation.end(self.running.lease, "done")
            self.running = None

    async def own(self) -> None:
        """The run calls tools: a call and its results."""
        if self.running is None:
            return
        self.steps += 1
        names = [f"c{self.steps}-{n}" for n in range(self.chance.choice((1, 3, 9)))]
        call = answer_message("", tool_calls=tuple(ToolCall(name, "grep", "{}") for name in names))
        outputs = [output(name, tokens=self.chance.choice((9, 900))) for name in names]
        for step, message in enumerate((call, *outputs)):
            append = self.conversation.database.messages.append_message
            await append(self.running.lease, f"{self.steps}:{step}", message)

    async def pin(self) -> None:
        messages = await self.conversation.messages()
        if messages:
            await self.conversation.pin(*self.chance.sample(messages, min(3, len(messages))))

    async def unpin(self) -> None:
        pinned = [message for message in await self.conversation.messages() if message.pinned]
        if pinned:
            ids = (self.chance.choice(pinned).id,)
            session, owner_id = self.conversation.session, self.conversation.owner_id
            await self.conversation.database.pins.unpin(owner_id, session.id, ids)

    async def adopt(self) -> None:
        cursor = (await self.conversation.reload()).summary_through_position
        later = [message for message in await self.conversation.messages() if message.position > cursor]
        if later:
            summaries, through = self.conversation.database.summaries, self.chance.choice(later)
            await summaries.adopt_summary(await self.adoption(through))
            if through is not later[-1] and self.chance.random() < 0.5:
                await summaries.prepare_summary(await self.adoption(later[-1]))

    async def adoption(self, through: Message) -> Adoption:
        session = await self.conversation.reload()
        new = replace(segment_of(through, "summary"), redaction_count=session.redaction_count)
        segment = await self.conversation.database.summaries.save_segment(session.id, new)
        return adoption_of(session.summary_version, through, segment)

    async def restore(self) -> None:
        session, owner_id = self.conversation.session, self.conversation.owner_id
        summaries = self.conversation.database.summaries
        versions = [item for item in (await summaries.list(owner_id, session.id)).items if item.version is not None]
        if versions:
            await summaries.restore(owner_id, session.id, self.chance.choice(versions).id)

    async def redact(self) -> None:
        messages = await self.conversation.messages()
        if messages and self.running is None:
            message = self.chance.choice(messages)
            wanted = Redaction(self.conversation.owner_id, self.conversation.session.id, message.id)
            await self.conversation.database.messages.redact(wanted)


def output(name: str, *, tokens: int) -> NewMessage:
    return NewMessage(Role.TOOL, "x", Source.API, tool_call_id=name, name="grep", token_count=tokens, counter="test")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_the_same_is_loaded_as_without_kept_rows(processes: Processes, seed: int) -> None:
    chance = random.Random(seed)
    story = Story(processes, await open_conversation(processes.plain), chance)

    for _ in range(40):
        await story.go_on()
        for _ in range(chance.choice((0, 1, 2))):
            await processes.check(chance, story.conversation.session.id, [*story.run_ids[-3:], None])


async def test_two_processes_take_turns_at_one_session(processes: Processes) -> None:
    conversation = await open_conversation(processes.plain)
    for number in range(8):
        database = processes.keeping[number % 2]
        here = replace(conversation, database=database)
        claimed = await here.start()
        await database.messages.append_message(claimed.lease, "user", user_message(f"question {number}"))

        loaded = await load(database, conversation.session.id, claimed.run.id, 1000)

        await here.end(claimed.lease, f"answer {number}")
        assert [message.content for message in loaded.own] == [f"question {number}"]
        assert [message.position for message in loaded.history] == list(range(1, 2 * number + 1))
        assert loaded.history[-1:] == () or loaded.history[-1].content == f"answer {number - 1}"


async def test_a_redaction_elsewhere_takes_the_text_out_of_what_is_loaded(processes: Processes) -> None:
    conversation = await open_conversation(processes.keeping[1])
    stored = await conversation.say("one", "secret", "three")
    await load(processes.keeping[0], conversation.session.id, None, 1000)

    await conversation.database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, stored[1].id))
    loaded = await load(processes.keeping[0], conversation.session.id, None, 1000)

    assert [message.content for message in loaded.history] == ["one", MARKER, "three"]


async def test_an_erased_session_is_gone_and_a_new_one_in_its_place_is_loaded(
    processes: Processes, database_url: str
) -> None:
    conversation = await open_conversation(processes.keeping[1])
    session_id = conversation.session.id
    await conversation.say("old", "older", "oldest")
    await load(processes.keeping[0], session_id, None, 1000)
    columns = "session_id, position, role, source"
    row = await run_sql(database_url, "select agent, source from sessions where id = $1", session_id)

    await conversation.database.sessions.delete(conversation.owner_id, session_id)
    with pytest.raises(NotFound):
        await load(processes.keeping[0], session_id, None, 1000)
    await load(processes.keeping[0], (await open_conversation(processes.plain)).session.id, None, 1000)
    await run_sql(
        database_url,
        "insert into sessions (id, owner_id, agent, source, title, metadata, message_count)"
        " values ($1, $2, $3, $4, '', '{}', 3)",
        session_id,
        conversation.owner_id,
        *row[0],
    )
    await run_sql(
        database_url,
        f"insert into messages (id, content, {columns}) select gen_random_uuid(), 'new', $1, n, 'user', 'api'"
        " from generate_series(1, 3) n",
        session_id,
    )

    loaded = await load(processes.keeping[0], session_id, None, 1000)
    assert [message.content for message in loaded.history] == ["new"] * 3


async def test_rows_that_a_database_was_set_back_before_are_not_shown(processes: Processes, database_url: str) -> None:
    conversation = await open_conversation(processes.keeping[1])
    session_id = conversation.session.id
    await conversation.say("kept", "lost", "lost too")
    await load(processes.keeping[0], session_id, None, 1000)

    await run_sql(database_url, "alter table messages disable trigger user")
    await run_sql(database_url, "delete from messages where session_id = $1 and position > 1", session_id)
    await run_sql(database_url, "update sessions set message_count = 1 where id = $1", session_id)
    await conversation.say("again", "and again", "and on")

    loaded = await load(processes.keeping[0], session_id, None, 1000)
    assert [message.content for message in loaded.history] == ["kept", "again", "and again", "and on"]


async def test_an_imported_session_is_loaded_as_it_is(processes: Processes) -> None:
    owner_id = await processes.plain.users.get_or_create("anna")
    new = Imported(owner_id, "assistant", "", Source.API, {})
    messages = [DatedMessage(user_message(f"text {n}")) for n in range(5)]

    session = await processes.keeping[0].sessions.import_conversation(new, messages)
    first, second = [await load(processes.keeping[0], session.id, None, 1000) for _ in range(2)]

    assert [message.position for message in first.history] == [1, 2, 3, 4, 5]
    assert second == first


@dataclass
class Counting:
    """Counts the statements and the rows they return."""

    transactions: Transactions
    statements: int = 0
    rows: int = 0

    async def fetch(self, statement: Statement, /, **parameters: object) -> Sequence[Row]:
        found = await self.transactions.fetch(statement, **parameters)
        self.statements, self.rows = self.statements + 1, self.rows + len(found)
        return found


@pytest.mark.parametrize(("new", "statements", "rows"), [(0, 1, 1), (3, 1, 3), (MOST_NEW + 1, 2, MOST_NEW + 301 + 1)])
async def test_one_statement_brings_only_what_is_new(
    database: Database, database_url: str, new: int, statements: int, rows: int
) -> None:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 1.0))
    conversation, loaded = await open_conversation(database), MessageCache(1_000_000_000)
    await conversation.say(*("text" for _ in range(300)))
    wanted = Wanted(conversation.session.id, None, 100_000)
    await load_known_context(Transactions(pool), loaded, wanted)
    if new:
        await conversation.say(*("more" for _ in range(new)))
    counting = Counting(Transactions(pool))

    found = await load_known_context(counting, loaded, wanted)

    await pool.close()
    assert len(found.history) == 300 + new
    assert counting.statements == statements
    assert counting.rows == rows


POSITIONS = "select m.position from message_reasoning t join messages m on m.id = t.message_id order by m.position"


def thinking(answer: str, thought: str) -> NewMessage:
    message = answer_message(answer)
    return NewMessage(message.role, answer, message.source, reasoning=Reasoning(thought))


async def talk(conversation: Conversation, count: int) -> list[Message]:
    """Store so many exchanges, each in a run of its own that showed its reasoning as an event."""
    stored: list[Message] = []
    for number in range(count):
        claimed = await conversation.start()
        for step, message in enumerate((user_message(f"question {number}"), thinking(f"answer {number}", "tangelo42"))):
            stored.append(await conversation.database.messages.append_message(claimed.lease, f"s{step}", message))
        await conversation.database.events.append_events(
            claimed.lease, [NewEvent(1, ReasoningDelta(MESSAGE_ID, "tangelo42"))]
        )
        await conversation.end(claimed.lease)
    return stored


async def redact(conversation: Conversation, message: Message) -> None:
    wanted = Redaction(conversation.owner_id, conversation.session.id, message.id)
    await conversation.database.messages.redact(wanted)


async def events_of(conversation: Conversation, messages: Sequence[Message]) -> list[bool]:
    """Whether the events of each message's run still show reasoning."""
    events = conversation.database.events
    runs = [message.run_id for message in messages]
    read = [await events.read_events(run_id, 0) for run_id in runs if run_id is not None]
    return [any(event.type is EventType.REASONING_DELTA for event in found) for found in read]


async def test_a_redaction_takes_the_reasoning_from_the_message_on(
    conversation: Conversation, database_url: str
) -> None:
    stored = await talk(conversation, 3)
    other = await open_conversation(conversation.database)
    elsewhere = await talk(other, 1)

    await redact(conversation, stored[2])

    assert await run_sql(database_url, POSITIONS) == [(2,), (2,)]
    assert await events_of(conversation, stored[::2]) == [True, False, False]
    assert await events_of(other, elsewhere[:1]) == [True]


async def test_it_goes_with_its_session(conversation: Conversation, database_url: str) -> None:
    await talk(conversation, 2)

    await conversation.database.sessions.delete(conversation.owner_id, conversation.session.id)

    assert await run_sql(database_url, "select * from message_reasoning") == []


@pytest.mark.parametrize("is_indexed", [True, False])
async def test_a_search_does_not_find_it(conversation: Conversation, *, is_indexed: bool) -> None:
    await talk(conversation, 2)
    history, who, where = conversation.database.history, conversation.owner_id, conversation.session.id
    if is_indexed:
        await history.index_session(where)

    assert (await history.search(who, where, HistoryQuery("tangelo42"))).hits == ()
    assert (await history.search(who, where, HistoryQuery("answer"))).hits != ()


async def test_a_page_with_reasoning_is_as_bounded_as_one_without(conversation: Conversation) -> None:
    large = "x" * (PAGE_BYTES // 4 + 1)
    await conversation.store(*(thinking(f"answer {number}", large) for number in range(6)))
    messages = conversation.database.messages

    plain = await messages.list_messages(conversation.owner_id, conversation.session.id, MessageQuery())
    page = await messages.list_messages(conversation.owner_id, conversation.session.id, MessageQuery(reasoning="shown"))

    assert (len(plain.items), plain.next_cursor) == (6, None)
    assert (len(page.items), page.next_cursor) == (4, "4")


async def test_a_repeated_step_keeps_the_first_reasoning(conversation: Conversation, database_url: str) -> None:
    claimed = await conversation.start()
    append = conversation.database.messages.append_message
    await append(claimed.lease, "assistant:0", thinking("answer", "first"))
    await append(claimed.lease, "assistant:0", thinking("answer", "second"))

    assert await run_sql(database_url, "select text from message_reasoning") == [("first",)]
