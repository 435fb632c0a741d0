"""A caller's own ids for sessions: found or created in one statement, and what sessions' metadata contain."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from fakes.conversations import CLAIMER, Conversation, claim_next, open_conversation
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import ExplainedTransactions, hold_rows, nodes_of, run_sql, until_sql
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs.claim import CLAIM
from throughline.db.sessions.create import CreateOutcome, create_session
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.sessions.repository import SessionChange, SessionQuery, SessionRepository
from throughline.domain.basic_types import JsonObject, JsonValue, SessionId, UserId
from throughline.domain.errors import ExternalIdTaken, IdempotencyKeyReused, NotFound, OwnerQueueFull
from throughline.domain.message import Source
from throughline.domain.run import Caps, Claimer, RunStatus
from throughline.domain.session import NewSession, Session

FILL = """
    insert into sessions (id, owner_id, agent, source, metadata, external_id)
    select gen_random_uuid(), $1, 'assistant', 'api', cast($2 as jsonb), $3 || n from generate_series(1, $4) n
"""
ONE_AT_WORK = """
    select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%on conflict (owner_id, external_id)%'
    and datname = current_database()
"""
"""Whether a statement that creates a session waits for another transaction."""


@pytest.fixture
async def owner_id(database: Database) -> UserId:
    return await database.users.get_or_create("anna")


def new_session(owner_id: UserId, external_id: str | None, metadata: JsonObject | None = None) -> NewSession:
    return NewSession(owner_id, "assistant", "", Source.API, metadata or {}, external_id=external_id)


async def make(database: Database, owner_id: UserId, external_id: str | None, **metadata: JsonValue) -> Session:
    return (await database.sessions.create(new_session(owner_id, external_id, metadata)))[0]


async def listed(database: Database, owner_id: UserId, query: SessionQuery) -> Sequence[SessionId]:
    return [session.id for session in (await database.sessions.list(owner_id, query)).items]


async def test_a_session_is_created_once_and_then_found_as_it_is(database: Database, owner_id: UserId) -> None:
    created, first = await database.sessions.create(new_session(owner_id, "order 7"))
    changed = await database.sessions.update(owner_id, created.id, SessionChange(title="Trip", archived=True))

    found, second = await database.sessions.create(replace(new_session(owner_id, "order 7"), agent="researcher"))

    assert (first, second) == (CreateOutcome.CREATED, CreateOutcome.FOUND)
    assert found == changed
    assert (found.external_id, found.archived, found.agent) == ("order 7", True, "assistant")


async def test_calls_at_the_same_time_create_one_session(database: Database, owner_id: UserId) -> None:
    made = await asyncio.gather(*(database.sessions.create(new_session(owner_id, "order 7")) for _ in range(20)))

    assert len({session.id for session, _ in made}) == 1
    assert [outcome for _, outcome in made].count(CreateOutcome.CREATED) == 1


async def test_a_call_that_waited_for_another_finds_its_session_at_the_first_try(
    database_url: str, owner_id: UserId
) -> None:
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    attempts = 0

    async def intent(tx: Statements) -> tuple[Session, CreateOutcome]:
        nonlocal attempts
        attempts += 1
        return await create_session(tx, new_session(owner_id, "order 7"))

    insert = FILL.replace("$1", f"'{owner_id}'").replace("$2", "'{}'").replace("$3", "'order '").replace("$4", "7")
    async with hold_rows(database_url, insert):
        waiting = asyncio.create_task(Transactions(pool).run(intent))
        await until_sql(database_url, ONE_AT_WORK)
    session, outcome = await waiting
    await pool.close()

    assert (session.external_id, outcome, attempts) == ("order 7", CreateOutcome.FOUND, 1)


async def test_owners_have_their_own_external_ids(database: Database, owner_id: UserId) -> None:
    mine = await make(database, owner_id, "order 7")
    stranger = await database.users.get_or_create("mallory")

    other, outcome = await database.sessions.create(new_session(stranger, "order 7"))

    assert (other.owner_id, outcome) == (stranger, CreateOutcome.CREATED)
    assert await listed(database, owner_id, SessionQuery(external_id="order 7")) == [mine.id]
    assert await listed(database, stranger, SessionQuery(external_id="order 7")) == [other.id]


async def test_an_erased_session_frees_its_external_id(database: Database, owner_id: UserId) -> None:
    first = await make(database, owner_id, "order 7")
    await database.sessions.delete(owner_id, first.id)

    second, outcome = await database.sessions.create(new_session(owner_id, "order 7"))

    assert outcome is CreateOutcome.CREATED
    assert second.id != first.id


async def test_an_idempotency_key_comes_before_an_external_id(database: Database, owner_id: UserId) -> None:
    keyed = replace(new_session(owner_id, "a"), idempotency_key="k", fingerprint="f")
    first, created = await database.sessions.create(keyed)
    await database.sessions.update(owner_id, first.id, SessionChange(external_id="b"))
    other = await make(database, owner_id, "a")

    again, replayed = await database.sessions.create(keyed)
    found, by_id = await database.sessions.create(replace(keyed, idempotency_key="k2"))

    assert (created, replayed, by_id) == (CreateOutcome.CREATED, CreateOutcome.REPLAYED, CreateOutcome.FOUND)
    assert (again.id, found.id) == (first.id, other.id)
    with pytest.raises(IdempotencyKeyReused):
        await database.sessions.create(replace(keyed, fingerprint="g"))


async def test_an_external_id_is_set_kept_and_removed(database: Database, owner_id: UserId) -> None:
    session = await make(database, owner_id, None)

    changes = (SessionChange(external_id="a"), SessionChange(title="t"), SessionChange(external_id="a"))
    states = [(await database.sessions.update(owner_id, session.id, change)).external_id for change in changes]
    removed = await database.sessions.update(owner_id, session.id, SessionChange(external_id=""))

    assert states == ["a", "a", "a"]
    assert removed.external_id is None


async def test_a_taken_external_id_is_refused_by_name_and_changes_nothing(database: Database, owner_id: UserId) -> None:
    await make(database, owner_id, "order 7")
    session = await make(database, owner_id, None)

    with pytest.raises(ExternalIdTaken, match="Another session of yours has the external id 'order 7'"):
        await database.sessions.update(owner_id, session.id, SessionChange(title="t", external_id="order 7"))

    assert await database.sessions.get(owner_id, session.id) == session
    with pytest.raises(NotFound):
        await database.sessions.update(UserId(session.id), session.id, SessionChange(external_id="order 7"))


async def test_of_two_sessions_that_take_one_id_at_once_one_is_refused(database: Database, owner_id: UserId) -> None:
    sessions = [await make(database, owner_id, None) for _ in range(5)]
    change = SessionChange(external_id="order 7")

    ended = await asyncio.gather(
        *(database.sessions.update(owner_id, one.id, change) for one in sessions), return_exceptions=True
    )

    assert [isinstance(one, ExternalIdTaken) for one in ended].count(True) == len(sessions) - 1


async def test_sessions_are_listed_by_what_their_metadata_contain(database: Database, owner_id: UserId) -> None:
    plain = await make(database, owner_id, None)
    atlas = await make(database, owner_id, None, project="atlas", tags=["a", "b"])
    nested = await make(database, owner_id, None, project="atlas", of={"team": 7, "x": None})
    stranger = await database.users.get_or_create("mallory")
    await make(database, stranger, None, project="atlas")

    async def found(metadata: JsonObject, **others: str) -> Sequence[SessionId]:
        query = SessionQuery(metadata=metadata, agent=others.get("agent"), q=others.get("q"))
        return await listed(database, owner_id, query)

    assert await found({"project": "atlas"}) == [nested.id, atlas.id]
    assert await found({"tags": ["b"]}) == [atlas.id]
    assert await found({"of": {"team": 7}}) == [nested.id]
    assert await found({"project": "Atlas"}) == await found({"of": {"team": "7"}}) == []
    assert await found({"project": "atlas"}, agent="researcher") == []
    assert await found({}) == [nested.id, atlas.id, plain.id]


async def test_pages_of_filtered_sessions_show_each_one_once(database: Database, owner_id: UserId) -> None:
    made = [(await make(database, owner_id, None, project="atlas" if n % 2 else "other")).id for n in range(10)]

    seen: list[SessionId] = []
    query = SessionQuery(limit=2, metadata={"project": "atlas"})
    while True:
        page = await database.sessions.list(owner_id, query)
        seen += [session.id for session in page.items]
        if page.next_cursor is None:
            break
        query = replace(query, cursor=page.next_cursor)

    assert seen == made[1::2][::-1]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (SessionQuery(metadata={"project": "rare"}), "sessions_metadata"),
        (SessionQuery(external_id="rare 1"), "sessions_external_id"),
    ],
    ids=["metadata", "external id"],
)
async def test_both_filters_read_their_index_and_not_all_sessions(
    database: Database, database_url: str, owner_id: UserId, query: SessionQuery, index: str
) -> None:
    await run_sql(database_url, FILL, owner_id, '{"project": "common", "x": [1, 2]}', "common ", 5_000)
    await run_sql(database_url, FILL, owner_id, "{}", "none ", 5_000)
    await run_sql(database_url, FILL, owner_id, '{"project": "rare"}', "rare ", 3)
    await run_sql(database_url, "analyze sessions")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "order by s.updated_at desc")
    sessions = SessionRepository(transactions, database.notifier, MessageCache(1))

    page = await sessions.list(owner_id, query)
    await pool.close()

    assert len(page.items) in {1, 3}
    nodes = list(nodes_of(transactions.plan))
    assert [node["Index Name"] for node in nodes if "Index Name" in node] == [index]
    assert [node for node in nodes if node["Node Type"] == "Seq Scan"] == []


async def test_finding_a_session_by_its_external_id_reads_indexes_only(database_url: str, owner_id: UserId) -> None:
    await run_sql(database_url, FILL, owner_id, "{}", "order ", 5_000)
    await run_sql(database_url, "analyze sessions")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "on conflict")

    _, outcome = await create_session(transactions, new_session(owner_id, "order 7"))
    await pool.close()

    assert outcome is CreateOutcome.FOUND
    nodes = list(nodes_of(transactions.plan))
    assert [node for node in nodes if node["Node Type"] == "Seq Scan"] == []
    assert "sessions_external_id" in {node.get("Index Name") for node in nodes}


ENTRIES = """
    with made as (
        insert into sessions (id, owner_id, agent, source, metadata)
        select gen_random_uuid(), $1, 'assistant', 'api', '{}' from generate_series(1, $2::integer) returning id
    )
    insert into runs (id, session_id, owner_id, agent, input, source, status)
    select gen_random_uuid(), id, $1, 'assistant', '{"content": "Hi", "metadata": {}}', 'api', 'queued' from made
"""


async def conversation_of(database: Database, owner: str) -> Conversation:
    """Return a new session of this owner."""
    return await open_conversation(database, owner=owner)


async def serve_next(database: Database, owners: dict[object, str]) -> str:
    """Claim the next run and end it; return whose it was."""
    claimed = await claim_next(database.runs, CLAIMER)
    assert claimed is not None
    await (await open_conversation(database)).end(claimed.lease)
    return owners[claimed.run.owner_id]


async def test_one_message_comes_before_all_but_the_first_of_another_users_queue(database: Database) -> None:
    many = [await conversation_of(database, "anna") for _ in range(20)]
    for conversation in many:
        await conversation.submit()
    one = await conversation_of(database, "bert")
    await one.submit()

    claimed = [await claim_next(database.runs, CLAIMER) for _ in range(3)]

    assert [run is not None and run.run.owner_id for run in claimed] == [
        many[0].owner_id,
        one.owner_id,
        many[0].owner_id,
    ]


async def test_owners_take_turns_where_one_run_is_worked_on_at_a_time(database: Database) -> None:
    owners: dict[object, str] = {}
    for name, number in (("anna", 4), ("bert", 2), ("cora", 1)):
        for _ in range(number):
            conversation = await conversation_of(database, name)
            owners[conversation.owner_id] = name
            await conversation.submit()

    served = [await serve_next(database, owners) for _ in range(7)]

    assert served == ["anna", "bert", "cora", "anna", "bert", "anna", "anna"]


async def test_of_one_owner_the_oldest_is_taken_and_a_busy_session_is_passed_over(database: Database) -> None:
    first, second = await conversation_of(database, "anna"), await conversation_of(database, "anna")
    submitted = [await conversation.submit() for conversation in (first, first, second)]

    claimed = [await claim_next(database.runs, CLAIMER) for _ in range(3)]

    assert [None if one is None else one.run.id for one in claimed] == [submitted[0].run.id, submitted[2].run.id, None]


async def test_a_new_message_does_not_overtake_older_ones_of_its_user_that_could_be_taken(database: Database) -> None:
    older, newer = await conversation_of(database, "anna"), await conversation_of(database, "anna")
    waiting = await older.submit()

    submitted = await newer.submit(claimer=CLAIMER)
    claimed = [await claim_next(database.runs, CLAIMER) for _ in range(2)]

    assert submitted.claimed is None
    assert [None if one is None else one.run.id for one in claimed] == [waiting.run.id, submitted.run.id]


async def test_a_new_message_is_taken_at_once_where_older_ones_wait_for_their_sessions(
    database: Database,
) -> None:
    busy, free = await conversation_of(database, "anna"), await conversation_of(database, "anna")
    await busy.start()
    await busy.submit()
    await (await conversation_of(database, "bert")).submit()

    assert (await free.submit(claimer=CLAIMER)).claimed is not None


async def test_a_run_whose_worker_died_comes_before_all_that_waits(database: Database) -> None:
    begun, waiting = await conversation_of(database, "anna"), await conversation_of(database, "bert")
    lost = await begun.start(claimer=Claimer("dead", lease_seconds=0))
    await waiting.submit()

    claimed = await claim_next(database.runs, CLAIMER)

    assert claimed is not None
    assert claimed.run.id == lost.run.id


async def test_a_claim_for_one_owner_leaves_what_others_have_waiting_or_lost(database: Database) -> None:
    anna, bert, cora = [await conversation_of(database, name) for name in ("anna", "bert", "cora")]
    await cora.start(claimer=Claimer("dead", lease_seconds=0))
    await anna.submit()
    mine = await bert.submit()
    only_bert = replace(CLAIMER, only_for=bert.owner_id)

    claimed = [await claim_next(database.runs, only_bert) for _ in range(2)]

    assert [one and one.run.id for one in claimed] == [mine.run.id, None]


async def test_a_claim_for_one_owner_takes_up_what_a_dead_worker_left_of_theirs(database: Database) -> None:
    bert = await conversation_of(database, "bert")
    lost = await bert.start(claimer=Claimer("dead", lease_seconds=0))

    claimed = await claim_next(database.runs, replace(CLAIMER, only_for=bert.owner_id))

    assert claimed is not None
    assert claimed.run.id == lost.run.id


async def pages_read(url: str) -> int:
    """Return how many pages a claim reads, which then does not happen."""
    top = await plan_of_a_claim(url)
    return int(str(top["Shared Hit Blocks"])) + int(str(top["Shared Read Blocks"]))


async def plan_of_a_claim(url: str) -> JsonObject:
    """Return the plan of a claim as it was run."""
    asked: dict[str, object] = {
        "held": [],
        "most": 1,
        "skipped_attempt": None,
        "spaced_attempt": 2,
        "worker": "w",
        "claim_id": uuid4(),
        "lease_seconds": 10,
        "max_running_of_owner": 250,
    }
    plan = await run_sql(url, f"explain (analyze, buffers, format json) {CLAIM.text}", *CLAIM.arguments(asked))
    top: JsonObject = json.loads(str(plan[0][0]))[0]["Plan"]
    return top


@pytest.mark.slow
async def test_a_claim_does_not_read_the_queue(database: Database, database_url: str) -> None:
    conversation = await conversation_of(database, "anna")
    read = []
    await run_sql(database_url, "vacuum runs")  # deleted rows of other tests would be read, too
    for more in (500, 9_500):
        await run_sql(database_url, ENTRIES, conversation.owner_id, more)
        await run_sql(database_url, "analyze runs")
        read.append(await pages_read(database_url))

    assert read[1] < 2 * read[0] + 50


ENDED = """
    insert into runs (id, session_id, owner_id, agent, input, source, status)
    select gen_random_uuid(), $1, $2, 'assistant', '{"content": "Hi", "metadata": {}}', 'api', 'succeeded'
    from generate_series(1, 5000)
"""


async def test_a_claim_reads_no_ended_runs_of_a_long_session(database: Database, database_url: str) -> None:
    conversation = await conversation_of(database, "anna")
    await run_sql(database_url, ENTRIES, conversation.owner_id, 5_000)
    await run_sql(database_url, "update runs set status = 'succeeded'")  # the planner expects short sessions
    await run_sql(database_url, ENDED, conversation.session.id, conversation.owner_id)
    await conversation.submit()
    await run_sql(database_url, "vacuum (analyze) runs")

    nodes = list(nodes_of(await plan_of_a_claim(database_url)))

    scans = [node for node in nodes if "session_id" in str(node.get("Index Cond", ""))]
    assert {node["Index Name"] for node in scans} == {"runs_line"}
    assert max(float(str(node["Actual Rows"])) for node in scans) <= 1


@pytest.fixture
async def capped(database_url: str) -> AsyncGenerator[Database]:
    """Three messages of an owner may wait, and two turns run."""
    caps = Caps(queued_per_session=2, queued_per_owner=3, running_per_owner=2)
    opened = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    yield opened
    await opened.close()


async def sessions_of(database: Database, owner: str, number: int) -> list[Conversation]:
    return [await open_conversation(database, owner) for _ in range(number)]


async def test_one_message_too_many_is_refused_with_cap_and_number_and_not_stored(
    capped: Database, database_url: str
) -> None:
    *full, one_more = await sessions_of(capped, "anna", 4)
    for conversation in full:
        await conversation.submit()

    with pytest.raises(OwnerQueueFull, match=r"3 messages waiting .* .MAX_QUEUED_PER_OWNER") as refused:
        await one_more.submit()

    assert (refused.value.cap, refused.value.limit) == ("max_queued_per_owner", 3)
    assert await run_sql(database_url, "select count(*) from runs") == [(3,)]


async def test_one_owners_full_queue_is_nobody_elses(capped: Database) -> None:
    for conversation in await sessions_of(capped, "anna", 3):
        await conversation.submit()
    (other,) = await sessions_of(capped, "bert", 1)

    assert (await other.submit()).run.status is RunStatus.QUEUED


async def test_a_message_sent_again_under_its_key_is_answered_and_not_counted_twice(capped: Database) -> None:
    first, second, third, fourth = await sessions_of(capped, "anna", 4)
    sent = [await conversation.submit(key=f"k{n}") for n, conversation in enumerate((first, second))]
    again = [await conversation.submit(key=f"k{n}") for n, conversation in enumerate((first, second))]
    last = await third.submit(key="last")

    with pytest.raises(OwnerQueueFull):
        await fourth.submit(key="one more")

    assert [one.run.id for one in again] == [one.run.id for one in sent]
    assert (await third.submit(key="last")).run.id == last.run.id


async def test_an_owner_with_all_running_that_may_is_passed_over_until_one_has_ended(capped: Database) -> None:
    busy = await sessions_of(capped, "anna", 3)
    (other,) = await sessions_of(capped, "bert", 1)
    running = [(await conversation.submit(claimer=CLAIMER)).claimed for conversation in busy]
    theirs = await other.submit()

    claimed = [await claim_next(capped.runs, CLAIMER) for _ in range(2)]
    assert running[0] is not None
    await busy[0].end(running[0].lease)
    after = await claim_next(capped.runs, CLAIMER)

    assert [one is not None for one in running] == [True, True, False]
    assert [None if one is None else one.run.id for one in claimed] == [theirs.run.id, None]
    assert after is not None
    assert after.run.session_id == busy[2].session.id


async def test_what_a_free_slot_takes_at_once_does_not_count_as_waiting(database_url: str) -> None:
    caps = Caps(queued_per_session=2, queued_per_owner=2, running_per_owner=2)
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, caps=caps))
    busy, another = await sessions_of(database, "anna", 2)
    await busy.start()
    for _ in range(2):
        await busy.submit()

    assert (await another.submit(claimer=CLAIMER)).claimed is not None
    await database.close()
