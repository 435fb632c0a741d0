"""Model calls: stored once with the step or the end that they belong to, and reported by day, user, agent and model."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from fakes.conversations import BEHIND_ALL, Conversation, answer_message, user_message
from fakes.raw_sql import plan_of, rows_read, run_sql
from throughline.db import usage as usage_module
from throughline.db.statements.sql import new_id
from throughline.db.tables.partitions import first_id
from throughline.db.usage import CLOCK_DIFFERENCE
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import InvalidInput, LeaseLost
from throughline.domain.message import ToolCall
from throughline.domain.prompt import Usage
from throughline.domain.run import Outcome, RunStatus
from throughline.domain.usage_report import (
    CallPurpose,
    DaySpending,
    ModelCall,
    Payer,
    Spending,
    UsageGroup,
    UsageKey,
    UsageQuery,
)

WHOLE = Usage(1000, 100, cached_tokens=400, cache_write_tokens=50, reasoning_tokens=30, cost_usd=Decimal("0.00345"))
UNPRICED = Usage(10, 5)


def call(usage: Usage = WHOLE, model: str = "openai:gpt-4o", purpose: CallPurpose = CallPurpose.ANSWER) -> ModelCall:
    return ModelCall(model, purpose, usage)


def since_yesterday(owner_id: UserId | None, *group_by: UsageKey) -> UsageQuery:
    now = datetime.now(UTC)
    return UsageQuery(owner_id, now - timedelta(days=1), now + timedelta(days=1), group_by)


async def rows(url: str) -> Sequence[object]:
    return await run_sql(
        url,
        "select model, purpose, input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, "
        "cost_usd from model_calls order by id",
    )


async def test_the_calls_of_a_step_and_of_the_end_are_stored_with_them_and_once(
    conversation: Conversation, database_url: str
) -> None:
    claimed = await conversation.start()
    append, finish = conversation.database.messages.append_message, conversation.database.runs.finish
    step = answer_message("", tool_calls=(ToolCall("c1", "calculator", "{}"),))
    outcome = Outcome(RunStatus.SUCCEEDED, answer_message("42"), usage=WHOLE, calls=(call(UNPRICED, "small"),))

    await append(claimed.lease, "user", user_message("Hello"))
    for _ in range(2):
        await append(claimed.lease, "assistant:0", step, [call()])
    run = await finish(claimed.lease, outcome, (), BEHIND_ALL)
    assert await finish(claimed.lease, outcome, (), BEHIND_ALL) == run

    assert await rows(database_url) == [
        ("openai:gpt-4o", "answer", 1000, 100, 400, 50, 30, Decimal("0.00345")),
        ("small", "answer", 10, 5, None, None, None, None),
    ]
    assert run.usage == WHOLE
    named = await run_sql(database_url, "select distinct owner_id, session_id, run_id, agent from model_calls")
    assert named == [(conversation.owner_id, conversation.session.id, run.id, conversation.session.agent)]


async def test_a_worker_that_lost_its_lease_stores_no_calls(conversation: Conversation, database_url: str) -> None:
    claimed = await conversation.start()
    lost = replace(claimed.lease, fence=claimed.lease.fence - 1)
    outcome = Outcome(RunStatus.SUCCEEDED, answer_message("42"), calls=(call(),))

    with pytest.raises(LeaseLost):
        await conversation.database.messages.append_message(lost, "assistant:0", answer_message(""), [call()])
    with pytest.raises(LeaseLost):
        await conversation.database.runs.finish(lost, outcome, (), BEHIND_ALL)

    assert await rows(database_url) == []


async def test_a_report_adds_up_by_the_fields_it_is_asked_for(conversation: Conversation) -> None:
    usage, owner_id = conversation.database.usage, conversation.owner_id
    await usage.store_calls(Payer(owner_id, agent="helper"), [call(), call(), call(UNPRICED, "small")])
    await usage.store_calls(Payer(owner_id, agent="other"), [call(purpose=CallPurpose.SUMMARY)])
    await usage.store_calls(Payer(), [call(Usage(7, 0), "vectors", CallPurpose.EMBEDDING)])
    twice = Usage(2000, 200, 800, 100, 60, Decimal("0.0069"))

    by_model = await usage.report(since_yesterday(owner_id, UsageKey.AGENT, UsageKey.MODEL))
    in_all = await usage.report(since_yesterday(owner_id))
    of_all = await usage.report(since_yesterday(None, UsageKey.USER, UsageKey.PURPOSE))
    (day,) = await usage.report(since_yesterday(owner_id, UsageKey.DAY))

    assert by_model == (
        UsageGroup({UsageKey.AGENT: "helper", UsageKey.MODEL: "openai:gpt-4o"}, 2, 0, twice),
        UsageGroup({UsageKey.AGENT: "other", UsageKey.MODEL: "openai:gpt-4o"}, 1, 0, WHOLE),
        UsageGroup({UsageKey.AGENT: "helper", UsageKey.MODEL: "small"}, 1, 1, UNPRICED),
    )
    assert [(group.key, group.calls, group.unpriced_calls) for group in in_all] == [({}, 4, 1)]
    assert in_all[0].usage.cost_usd == Decimal("0.01035")
    assert [(group.key[UsageKey.USER], group.key[UsageKey.PURPOSE], group.calls) for group in of_all] == [
        ("anna", "answer", 3),
        ("anna", "summary", 1),
        (None, "embedding", 1),
    ]
    assert day.key[UsageKey.DAY] == f"{datetime.now(UTC):%Y-%m-%d}"


async def test_a_report_leaves_out_other_times_and_other_users(conversation: Conversation, database_url: str) -> None:
    usage = conversation.database.usage
    other_id = await conversation.database.users.get_or_create("somebody-else")
    await usage.store_calls(Payer(other_id), [call()])
    await usage.store_calls(Payer(conversation.owner_id), [call(), call()])
    await run_sql(
        database_url,
        "update model_calls set created_at = now() - interval '3 days' where id = "
        "(select id from model_calls where owner_id = $1 order by id limit 1)",
        conversation.owner_id,
    )

    (found,) = await usage.report(since_yesterday(conversation.owner_id))
    assert found.calls == 1
    assert (
        await usage.report(replace(since_yesterday(conversation.owner_id), until=datetime(2020, 1, 1, tzinfo=UTC)))
        == ()
    )


async def test_a_kept_plan_of_a_users_report_reads_no_calls_of_others(
    conversation: Conversation, database_url: str
) -> None:
    usage, owner_id = conversation.database.usage, conversation.owner_id
    await usage.store_calls(Payer(owner_id), [call(), call()])
    await run_sql(
        database_url,
        "insert into model_calls (id, owner_id, model, purpose) select cast(left(cast(cast($1 as uuid) as text), 18) "
        "|| right(cast(gen_random_uuid() as text), 18) as uuid), gen_random_uuid(), 'm', 'answer' "
        "from generate_series(1, 5000)",
        new_id(),
    )
    await run_sql(database_url, "analyze model_calls")
    asked = since_yesterday(owner_id)
    statement = usage_module._report((UsageKey.DAY,), is_of_owner=True)  # noqa: SLF001  # no other way to its plan
    ids = {"first_id": first_id(asked.since, -CLOCK_DIFFERENCE), "end_id": first_id(asked.until, CLOCK_DIFFERENCE)}

    plan = await plan_of(
        database_url,
        "force_generic_plan",
        statement,
        owner_id=owner_id,
        since=asked.since,
        until=asked.until,
        limit=10,
        **ids,
    )

    assert rows_read(plan, "model_calls") == 2


async def test_a_report_of_too_many_groups_is_refused(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_module, "MOST_GROUPS", 1)
    usage = conversation.database.usage
    await usage.store_calls(Payer(conversation.owner_id), [call(model="one"), call(model="two")])

    with pytest.raises(InvalidInput, match="more than 1 groups"):
        await usage.report(since_yesterday(conversation.owner_id, UsageKey.MODEL))


async def test_what_was_spent_today_is_that_of_one_user_and_agent(
    conversation: Conversation, database_url: str
) -> None:
    usage, owner_id = conversation.database.usage, conversation.owner_id
    assert await usage.spent_today(owner_id, "helper") == DaySpending()
    await usage.store_calls(Payer(owner_id, agent="helper"), [call(), call(UNPRICED), call(Usage())])
    await usage.store_calls(Payer(owner_id, agent="other"), [call()])
    await usage.store_calls(Payer(agent="helper"), [call()])
    await usage.store_calls(Payer(owner_id, agent="helper"), [call(model="old")])
    await run_sql(database_url, "update model_calls set created_at = now() - interval '1 day' where model = 'old'")

    assert (await usage.spent_today(owner_id, "helper")).spent == Spending(1115, Decimal("0.00345"))


@pytest.mark.parametrize("hours", [-50, -2, 0, 2, 50])
async def test_the_usage_of_a_session_is_found_however_wrong_a_clock_is(
    conversation: Conversation, database_url: str, hours: int
) -> None:
    time = datetime.now(UTC) + timedelta(hours=hours)
    session_id, call_id = first_id(time), first_id(time + timedelta(seconds=1))
    await run_sql(
        database_url,
        "insert into model_calls (id, owner_id, session_id, model, purpose, input_tokens) "
        "values ($1, $2, $3, 'm', 'summary', 7)",
        call_id,
        conversation.owner_id,
        session_id,
    )

    used = await conversation.database.usage.of_session(conversation.owner_id, SessionId(session_id))

    assert used == Usage(7)
