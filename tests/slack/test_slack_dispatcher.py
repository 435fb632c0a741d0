"""The loop around senders: what failed is tried again, what cannot succeed is ended, what is left is given back."""

import asyncio

import pytest

from fakes.old_rows import delete_old_rows
from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import TEAM, Failure, Person, say
from fakes.slack_stage import IDENTITY
from fakes.waiting import until_found
from throughline.db.retention import ROWS_AT_ONCE
from throughline.db.slack.people import SlackId
from throughline.slack.maintenance import Maintenance

ANNA = SlackId(TEAM, "U0ANNA001")


async def test_many_threads_are_delivered_beside_each_other(outgoing: DeliveryStage) -> None:
    for number in range(12):
        turn = await outgoing.ask(said=say(f"question {number}"))
        await turn.finish(f"answer {number}")

    async with dispatcher_of(outgoing, "one").running(), dispatcher_of(outgoing, "two").running():
        await outgoing.until(lambda: len(outgoing.posted) == 12)
        await asyncio.sleep(0.1)

    assert sorted(outgoing.texts()) == sorted(f"answer {number}" for number in range(12))


async def test_a_delivery_that_failed_for_a_passing_reason_is_tried_again(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", *[Failure(status=503)] * 3)
    turn = await outgoing.ask()
    await turn.finish("At last.")

    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("delivered", "")

    assert outgoing.texts() == ["At last."]


async def test_a_delivery_to_a_channel_that_is_gone_is_ended(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", *[Failure(error="is_archived")] * 2)
    turn = await outgoing.ask()
    await turn.finish("Anybody?")

    async with dispatcher_of(outgoing).running():
        await outgoing.until(lambda: len(outgoing.double.workspace.called("chat.postMessage")) == 2)
        await outgoing.until_stored("failed", "is_archived")

    assert outgoing.texts() == []


async def test_a_token_that_was_revoked_keeps_the_answer_waiting(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(error="token_revoked"))
    turn = await outgoing.ask()
    await turn.finish("When you are back.")

    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("waiting", "token_revoked")
        await outgoing.until_stored("delivered", "")

    assert outgoing.texts() == ["When you are back."]


@pytest.mark.slow
async def test_a_long_delivery_keeps_its_lease(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    two = [dispatcher_of(outgoing, name, lease_seconds=3.0) for name in ("one", "two")]
    async with two[0].running(), two[1].running():
        await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
        [(first,)] = await outgoing.rows("select lease_until from slack_deliveries")
        await until_found(lambda: outgoing.rows(f"select 1 where now() > '{first}'"))
        attempts = await outgoing.rows("select attempt, worker from slack_deliveries")
        await turn.finish("Still here.")
        await outgoing.until_stored("delivered", "")

    assert [attempt for attempt, _ in attempts] == [1]
    assert outgoing.texts() == ["Still here."]


async def test_what_is_under_way_at_a_shutdown_is_given_back_at_once(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    async with dispatcher_of(outgoing).running():
        await turn.say("The beginning. " * 40 + "\n")
        await outgoing.until(lambda: bool(outgoing.posted))
    assert await outgoing.rows("select status from slack_deliveries") == [("waiting",)]
    await turn.finish("The beginning. " * 40 + "\nThe end.")

    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("delivered", "")

    assert outgoing.texts() == ["The beginning. " * 40 + "\nThe end."]


async def test_a_session_erased_meanwhile_leaves_nothing_to_deliver(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    run = turn.claimed.run
    async with dispatcher_of(outgoing).running():
        await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
        await outgoing.database.sessions.delete(run.owner_id, run.session_id)
        await asyncio.sleep(0.2)

    assert await outgoing.rows("select count(*) from slack_deliveries") == [(0,)]
    assert await outgoing.rows("select session_id from slack_conversations") == [(None,)]
    assert outgoing.texts() == []


def upkeep_of(outgoing: DeliveryStage, *, link_by_email: bool) -> Maintenance:
    return Maintenance(outgoing.slack, outgoing.services.calls, outgoing.clock, IDENTITY, link_by_email=link_by_email)


async def test_people_are_called_by_their_names_once_these_are_known(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.people["U0ANNA001"] = Person("U0ANNA001", "Anna Ray")
    first = say("hello", channel="C0GENERAL")
    await outgoing.take(first)
    for _ in range(2):
        await upkeep_of(outgoing, link_by_email=False).run_once()
    await outgoing.take(say("again", channel="C0GENERAL", thread_ts=first.ts))

    asked = await outgoing.rows("select input ->> 'content' from runs order by seq")
    assert asked == [("U0ANNA001: hello",), ("Anna Ray: again",)]
    assert len(outgoing.double.workspace.called("users.info")) == 1, "a person is asked for once a day"


async def test_a_confirmed_address_links_where_the_operator_wants_it(outgoing: DeliveryStage) -> None:
    people = outgoing.double.workspace.people
    people["U0ANNA001"] = Person("U0ANNA001", "Anna", "Anna@Example.com")
    await outgoing.take(say("mine"))
    await upkeep_of(outgoing, link_by_email=False).run_once()
    before = await outgoing.slack.people.find(ANNA)
    await outgoing.rows("update slack_users set looked_up_at = null")
    await upkeep_of(outgoing, link_by_email=True).run_once()
    after = await outgoing.slack.people.find(ANNA)

    assert before is not None
    assert after is not None
    assert (before.user_name, after.user_name) == (f"slack:{TEAM}:U0ANNA001", "anna@example.com")
    assert await outgoing.rows("select u.name from sessions s join users u on u.id = s.owner_id") == [
        ("anna@example.com",)
    ]


async def test_unconfirmed_addresses_and_strangers_stay_guests(outgoing: DeliveryStage) -> None:
    people = outgoing.double.workspace.people
    people["U0ANNA001"] = Person("U0ANNA001", "Anna", "anna@example.com", is_email_confirmed=False)
    people["U0BERT001"] = Person("U0BERT001", "Bert", "bert@example.com", team="T0OTHER01")
    await outgoing.take(say("one"))
    await outgoing.take(say("two", user="U0BERT001", channel="D0BERT001"))
    await upkeep_of(outgoing, link_by_email=True).run_once()

    assert await outgoing.rows("select distinct linked_by from slack_users") == [("guest",)]


async def test_what_is_old_is_deleted(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("Done.")
    await outgoing.deliver()
    await outgoing.rows("update slack_events set created_at = now() - interval '8 days'")
    await outgoing.rows("update slack_deliveries set finished_at = now() - interval '8 days'")

    await delete_old_rows(outgoing.database)

    left = "select (select count(*) from slack_events), (select count(*) from slack_deliveries), count(*) from runs"
    assert await outgoing.rows(left) == [(0, 0, 1)]


async def test_more_of_what_is_old_than_goes_at_once_goes_with_the_next_batches(outgoing: DeliveryStage) -> None:
    await outgoing.rows(
        "insert into slack_events (team_id, event_id, channel_id, message_ts, created_at) "
        f"select 'T', n::text, 'C', n::text, now() - interval '8 days' from generate_series(1, {ROWS_AT_ONCE + 1}) n"
    )

    await delete_old_rows(outgoing.database)

    assert await outgoing.rows("select count(*) from slack_events") == [(0,)]
