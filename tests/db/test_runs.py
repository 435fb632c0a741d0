"""Runs: accepted once, claimed in order, held by one worker, ended once."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from fakes.conversations import (
    BEHIND_ALL,
    CLAIMER,
    Conversation,
    answer_message,
    claim_next,
    is_held,
    open_conversation,
    pulse_of,
    user_message,
)
from fakes.event_log import MESSAGE_ID
from fakes.pooler import shared_address, urls_of
from fakes.raw_sql import BACKENDS, ExplainedTransactions, hold_rows, nodes_of, run_sql, until_sql
from throughline.db.connection.pool import ConnectionPool, PoolConfig
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs import list_runs
from throughline.db.runs.list_runs import RunQuery
from throughline.db.sessions.repository import SessionChange
from throughline.domain.basic_types import RunId
from throughline.domain.errors import (
    DatabaseUnavailable,
    IdempotencyKeyReused,
    InvalidInput,
    LeaseLost,
    NotFound,
    QueueFull,
    SessionBusy,
    ThroughlineError,
)
from throughline.domain.events import AnswerReset, EventType, MessageCompleted, MessageDelta, NewEvent, RunEnded
from throughline.domain.prompt import Usage
from throughline.domain.run import Caps, Claimer, OnBusy, Outcome, RunError, RunStatus

EXPIRED = Claimer(worker="dead", lease_seconds=0)


async def test_a_lease_is_renewed_while_slow_requests_take_the_whole_pool(database_url: str) -> None:
    database = await Database.open(DatabaseConfig(**urls_of(database_url), pool_size=2, pool_timeout_seconds=0.1))
    conversation = await open_conversation(database)
    claimed = await conversation.start(claimer=EXPIRED)

    async def wait_for_the_session() -> None:
        while True:
            with contextlib.suppress(DatabaseUnavailable):
                await database.sessions.update(conversation.owner_id, conversation.session.id, SessionChange("renamed"))

    waiting = f"select 1 from {BACKENDS} where wait_event_type = 'Lock' and application_name = 'throughline'"
    async with hold_rows(database_url, "select 1 from sessions for update"):
        requests = [asyncio.create_task(wait_for_the_session()) for _ in range(2)]
        await until_sql(database_url, waiting, [(1,)] * 2)
        pulse = await pulse_of(database, claimed.lease)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    assert pulse.is_renewed
    assert await claim_next(database.runs, CLAIMER) is None
    await database.close()


async def test_leases_are_renewed_on_a_new_connection_once_theirs_is_lost(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    await pulse_of(conversation.database, claimed.lease)

    drop = f"select pg_terminate_backend(pid) from {BACKENDS} where application_name = 'throughline'"
    await run_sql(database_url, drop)

    assert (await pulse_of(conversation.database, claimed.lease)).is_renewed


async def test_a_key_used_by_twenty_clients_at_once_makes_one_run(conversation: Conversation) -> None:
    submitted = await asyncio.gather(
        *(conversation.submit("Hi", key="k1", fingerprint="f", claimer=CLAIMER) for _ in range(20))
    )

    assert len({one.run.id for one in submitted}) == 1
    assert sum(not one.replayed for one in submitted) == 1
    assert sum(one.claimed is not None for one in submitted) == 1


async def test_a_key_with_another_body_or_session_is_refused(conversation: Conversation) -> None:
    other = await open_conversation(conversation.database)
    await conversation.submit("Hi", key="k1", fingerprint="a")

    for where, fingerprint in ((conversation, "b"), (other, "a")):
        with pytest.raises(IdempotencyKeyReused, match="k1"):
            await where.submit("Hi", key="k1", fingerprint=fingerprint)


async def test_a_key_that_cannot_be_stored_is_invalid_input(conversation: Conversation) -> None:
    with pytest.raises(InvalidInput) as refused:
        await conversation.submit("Hi", key="k" * 256)

    assert refused.value.field == "Idempotency-Key"


async def test_the_first_message_names_the_session(conversation: Conversation) -> None:
    await conversation.submit("\n  " + "word " * 20 + "\nsecond line")
    await conversation.submit("another")

    title = (await conversation.reload()).title
    assert title == " ".join(["word"] * 11) + "…"


async def test_a_full_queue_refuses_and_stores_nothing(database_url: str) -> None:
    database = await Database.open(
        DatabaseConfig(**urls_of(database_url), pool_size=2, caps=Caps(queued_per_session=2))
    )
    conversation = await open_conversation(database)
    for _ in range(2):
        await conversation.submit()

    with pytest.raises(QueueFull, match="2 messages waiting"):
        await conversation.submit()

    assert await run_sql(database_url, "select count(*) from runs") == [(2,)]
    await database.close()


async def test_a_message_for_another_agent_gives_that_agent_to_its_session(conversation: Conversation) -> None:
    submitted = await conversation.submit(agent="other")

    assert (submitted.run.agent, (await conversation.reload()).agent) == ("other", "other")


async def test_a_refused_message_leaves_the_agent_of_its_session(conversation: Conversation) -> None:
    await conversation.start()

    with pytest.raises(SessionBusy):
        await conversation.submit(agent="other", on_busy=OnBusy.REJECT)

    assert (await conversation.reload()).agent == conversation.session.agent


async def test_reject_names_the_turn_that_is_in_the_way(conversation: Conversation) -> None:
    running = await conversation.start()

    with pytest.raises(SessionBusy) as refused:
        await conversation.submit(on_busy=OnBusy.REJECT)

    assert refused.value.run_id == str(running.run.id)


async def test_interrupt_asks_the_running_turn_to_stop_and_waits_behind_it(conversation: Conversation) -> None:
    running = await conversation.start()
    stopped: list[RunId] = []
    conversation.database.notifier.on_cancel(stopped.append)

    queued = await conversation.submit("Stop, do this", on_busy=OnBusy.INTERRUPT)

    assert (await pulse_of(conversation.database, running.lease)).is_cancel_requested
    assert queued.run.status is RunStatus.QUEUED
    assert stopped == [running.run.id]


async def test_a_refused_interruption_interrupts_nothing(database_url: str) -> None:
    database = await Database.open(
        DatabaseConfig(**urls_of(database_url), pool_size=2, caps=Caps(queued_per_session=1))
    )
    conversation = await open_conversation(database)
    running = await conversation.start()
    await conversation.submit()

    with pytest.raises(QueueFull):
        await conversation.submit(on_busy=OnBusy.INTERRUPT)

    assert not (await pulse_of(database, running.lease)).is_cancel_requested
    await database.close()


async def test_an_archived_session_takes_no_messages(conversation: Conversation) -> None:
    sessions = conversation.database.sessions
    await sessions.update(conversation.owner_id, conversation.session.id, SessionChange(archived=True))

    with pytest.raises(InvalidInput, match="archived"):
        await conversation.submit()


async def test_one_turn_runs_at_a_time_and_in_order_of_acceptance(conversation: Conversation) -> None:
    accepted = [(await conversation.submit(f"{n}")).run.id for n in range(5)]
    runs = conversation.database.runs

    order: list[RunId] = []
    for _ in accepted:
        claims = await asyncio.gather(*(claim_next(runs, CLAIMER) for _ in range(4)))
        taken = [claim for claim in claims if claim is not None]
        assert len(taken) == 1
        order.append(taken[0].run.id)
        await conversation.end(taken[0].lease)

    assert order == accepted


async def test_racing_workers_share_the_sessions_among_them(conversation: Conversation) -> None:
    others = [await open_conversation(conversation.database) for _ in range(7)]
    for one in (conversation, *others):
        await one.submit()

    claims: list[RunId] = []
    while len(claims) < 8:
        taken = await asyncio.gather(*(claim_next(conversation.database.runs, CLAIMER) for _ in range(8)))
        claims += [claim.run.id for claim in taken if claim is not None]

    assert len(set(claims)) == 8


async def test_an_expired_lease_is_taken_over_with_a_higher_fence(conversation: Conversation) -> None:
    await conversation.submit()
    dead = await claim_next(conversation.database.runs, EXPIRED)
    assert dead is not None
    await conversation.database.events.append_events(dead.lease, [NewEvent(1, AnswerReset(1))])

    taken = await claim_next(conversation.database.runs, CLAIMER)

    assert taken is not None
    assert (taken.run.id, taken.lease.fence, taken.run.attempt) == (dead.run.id, dead.lease.fence + 1, 2)
    assert taken.next_event == 2
    assert not await is_held(conversation.database, dead.lease)
    with pytest.raises(LeaseLost):
        await conversation.database.events.append_events(dead.lease, [NewEvent(2, AnswerReset(1))])
    with pytest.raises(LeaseLost):
        await conversation.end(dead.lease, "from the dead")


async def test_what_was_tried_as_often_as_the_claimer_passes_over_is_not_taken_over(conversation: Conversation) -> None:
    await conversation.submit()
    for _ in range(2):
        await claim_next(conversation.database.runs, EXPIRED)

    assert await claim_next(conversation.database.runs, replace(CLAIMER, skipped_attempt=2)) is None
    taken = await claim_next(conversation.database.runs, replace(CLAIMER, skipped_attempt=1))

    assert taken is not None
    assert taken.run.attempt == 3


async def test_a_heartbeat_keeps_the_run_from_others(conversation: Conversation) -> None:
    await conversation.submit()
    claimed = await claim_next(conversation.database.runs, EXPIRED)
    assert claimed is not None

    pulses = await conversation.database.runs.renew([claimed.lease], 30)

    assert pulses[claimed.lease].is_renewed
    assert await claim_next(conversation.database.runs, CLAIMER) is None


async def test_a_run_given_back_is_first_in_line_and_its_attempt_does_not_count(conversation: Conversation) -> None:
    claimed = await conversation.start()
    await conversation.submit("later")

    await conversation.database.runs.give_back(claimed.lease)
    await conversation.database.runs.give_back(claimed.lease)
    again = await claim_next(conversation.database.runs, CLAIMER)

    assert again is not None
    assert (again.run.id, again.run.attempt) == (claimed.run.id, 1)


async def test_finish_stores_answer_usage_and_events_together_and_once(conversation: Conversation) -> None:
    claimed = await conversation.start()
    await conversation.database.messages.append_message(claimed.lease, "user", user_message("Hello"))
    outcome = Outcome(RunStatus.SUCCEEDED, answer_message("42"), Usage(10, 3), context={"total_tokens": 7})
    run = await conversation.database.runs.finish(
        claimed.lease, outcome, [NewEvent(1, MessageDelta(MESSAGE_ID, "4ü"))], 2
    )

    answer = (await conversation.messages())[-1]
    assert (answer.position, answer.content, run.message_id) == (2, "42", answer.id)
    assert await conversation.database.runs.get_run(conversation.owner_id, run.id) == run
    assert (run.usage, run.context) == (Usage(10, 3), {"total_tokens": 7})
    events = await conversation.database.events.read_events(run.id, 0)
    assert [(event.seq, event.event) for event in events] == [
        (1, MessageDelta(MESSAGE_ID, "4ü")),
        (2, MessageCompleted(answer)),
        (3, RunEnded(run, answer)),
    ]
    assert await conversation.database.runs.finish(claimed.lease, outcome, (), BEHIND_ALL) == run
    assert len(await conversation.messages()) == 2


async def test_a_finish_that_breaks_halfway_stores_nothing(conversation: Conversation) -> None:
    claimed = await conversation.start()
    outcome = Outcome(RunStatus.SUCCEEDED, answer_message("42"))
    unstorable = NewEvent(2**40, MessageDelta(MESSAGE_ID, "its number fits no column"))

    with pytest.raises(ThroughlineError):
        await conversation.database.runs.finish(claimed.lease, outcome, [unstorable], 1)

    assert await conversation.messages() == ()
    assert await is_held(conversation.database, claimed.lease)


async def test_a_run_that_could_only_be_failed_keeps_what_the_provider_said(conversation: Conversation) -> None:
    claimed = await conversation.start()
    error = RunError("internal_error", "Not stored.", "blocked by policy 7")

    await conversation.database.runs.fail(claimed.lease, error)

    assert (await conversation.database.runs.get_run(conversation.owner_id, claimed.run.id)).error == error


async def test_a_failed_run_keeps_its_error_and_frees_the_session(conversation: Conversation) -> None:
    claimed = await conversation.start()
    queued = await conversation.submit("next")
    error = RunError("model_refused", "No.", "blocked by policy 7")
    outcome = Outcome(RunStatus.FAILED, error=error)

    run = await conversation.database.runs.finish(claimed.lease, outcome, (), BEHIND_ALL)
    following = await claim_next(conversation.database.runs, CLAIMER)

    assert (run.status, run.error, run.message_id) == (RunStatus.FAILED, error, None)
    assert following is not None
    assert following.run.id == queued.run.id


async def test_cancelling_a_queued_run_ends_it_with_its_last_event(conversation: Conversation) -> None:
    await conversation.start()
    queued = (await conversation.submit("never mind")).run
    runs = conversation.database.runs

    cancelled = await runs.request_cancel(conversation.owner_id, queued.id)
    again = await runs.request_cancel(conversation.owner_id, queued.id)

    assert cancelled.status is again.status is RunStatus.CANCELLED
    events = await conversation.database.events.read_events(queued.id, 0)
    assert [(event.seq, event.type) for event in events] == [(1, EventType.RUN_CANCELLED)]


async def test_another_owner_can_neither_see_nor_cancel_nor_submit(conversation: Conversation) -> None:
    claimed = await conversation.start()
    stranger = Conversation(
        conversation.database, await conversation.database.users.get_or_create("mallory"), conversation.session
    )

    for attempt in (
        stranger.database.runs.get_run(stranger.owner_id, claimed.run.id),
        stranger.database.runs.request_cancel(stranger.owner_id, claimed.run.id),
        stranger.submit(),
        stranger.submit(on_busy=OnBusy.INTERRUPT),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert not (await pulse_of(conversation.database, claimed.lease)).is_cancel_requested


async def test_a_batch_of_events_written_twice_is_stored_once(conversation: Conversation) -> None:
    claimed = await conversation.start()
    batch = [NewEvent(n, MessageDelta(MESSAGE_ID, f"{n}")) for n in (1, 2, 3)]

    await conversation.database.events.append_events(claimed.lease, batch[:2])
    await conversation.database.events.append_events(claimed.lease, batch)

    events = await conversation.database.events.read_events(claimed.run.id, 1)
    assert [(event.seq, event.event) for event in events] == [
        (2, MessageDelta(MESSAGE_ID, "2")),
        (3, MessageDelta(MESSAGE_ID, "3")),
    ]


async def test_what_an_archived_session_accepted_before_is_still_answered(
    conversation: Conversation,
) -> None:
    first = await conversation.submit("Hello", key="k1", fingerprint="f")
    sessions = conversation.database.sessions
    await sessions.update(conversation.owner_id, conversation.session.id, SessionChange(archived=True))

    again = await conversation.submit("Hello", key="k1", fingerprint="f")

    assert (again.run.id, again.replayed) == (first.run.id, True)


FILL = """
    insert into runs (id, session_id, owner_id, agent, input, source, status)
    select gen_random_uuid(), $1, $2, 'assistant', '{"content": "x", "metadata": {}}', 'api',
        case when n % 500 = 0 then 'failed' else 'succeeded' end
    from generate_series(1, 5000) n
"""


@pytest.mark.parametrize("status", [None, RunStatus.FAILED])
async def test_a_page_reads_no_rows_but_its_own(
    conversation: Conversation, database_url: str, status: RunStatus | None
) -> None:
    await run_sql(database_url, FILL, conversation.session.id, conversation.owner_id)
    await run_sql(database_url, "analyze runs")
    pool = ConnectionPool(shared_address(database_url), PoolConfig(1, 5.0))
    transactions = ExplainedTransactions(pool, "with asked as")

    page = await list_runs.list_runs(
        transactions, conversation.owner_id, conversation.session.id, RunQuery(limit=5, status=status)
    )
    await pool.close()

    assert len(page.items) == 5
    served = {"runs_of_session", "runs_by_status"}  # the second where most runs of a status are the session's
    (scan,) = [node for node in nodes_of(transactions.plan) if node.get("Index Name") in served]
    assert scan["Actual Rows"] == 6
    assert not scan.get("Rows Removed by Filter")


async def test_a_page_of_large_runs_is_shorter_and_the_next_goes_on(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_runs, "PAGE_BYTES", 1_500)
    runs = [(await conversation.submit("x" * 1_000)).run.id for _ in range(5)]

    found, query = [], RunQuery()
    while True:
        page = await conversation.database.runs.list_runs(conversation.owner_id, conversation.session.id, query)
        assert 1 <= len(page.items) <= 2
        found += [run.id for run in page.items]
        if page.next_cursor is None:
            break
        query = RunQuery(cursor=found[-1])

    assert found == runs[::-1]
