"""The loop around senders: what failed is tried again, what cannot succeed is ended, what is left is given back."""

import asyncio
import time

import pytest

from fakes.silent_metrics import delete_old_rows
from fakes.slack_delivery import IDENTITY, DeliveryStage, SlackStage, dispatcher_of
from fakes.slack_double import BOT_USER, TEAM, Failure, Person, Said, say
from fakes.slack_double.payloads import app_mention, deleted, edited, message
from fakes.waiting import until_found
from throughline.db.retention import ROWS_AT_ONCE
from throughline.slack.maintenance import Maintenance
from throughline.slack.store.people import SlackId

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


def maintenance_of(outgoing: DeliveryStage, *, link_by_email: bool) -> Maintenance:
    return Maintenance(outgoing.slack, outgoing.services.calls, outgoing.clock, IDENTITY, link_by_email=link_by_email)


async def test_people_are_called_by_their_names_once_these_are_known(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.people["U0ANNA001"] = Person("U0ANNA001", "Anna Ray")
    first = say("hello", channel="C0GENERAL")
    await outgoing.take(first)
    for _ in range(2):
        await maintenance_of(outgoing, link_by_email=False).run_once()
    await outgoing.take(say("again", channel="C0GENERAL", thread_ts=first.ts))

    asked = await outgoing.rows("select input ->> 'content' from runs order by seq")
    assert asked == [("U0ANNA001: hello",), ("Anna Ray: again",)]
    assert len(outgoing.double.workspace.called("users.info")) == 1, "a person is asked for once a day"


async def test_a_confirmed_address_links_where_the_operator_wants_it(outgoing: DeliveryStage) -> None:
    people = outgoing.double.workspace.people
    people["U0ANNA001"] = Person("U0ANNA001", "Anna", "Anna@Example.com")
    await outgoing.take(say("mine"))
    await maintenance_of(outgoing, link_by_email=False).run_once()
    before = await outgoing.slack.people.find(ANNA)
    await outgoing.rows("update slack_users set looked_up_at = null")
    await maintenance_of(outgoing, link_by_email=True).run_once()
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
    await maintenance_of(outgoing, link_by_email=True).run_once()

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


CHANNEL = "C0GENERAL"
KEPT = "select early_edit ->> 'text' from slack_events where early_edit is not null"


async def engage(stage: SlackStage) -> Said:
    """Mention the bot in a channel; its thread is answered from then on."""
    said = say(f"<@{BOT_USER}> hello", channel=CHANNEL)
    await stage.sender.once(message(said))
    return said


async def test_a_message_that_was_deleted_before_it_came_is_not_answered(stage: SlackStage) -> None:
    said = say(f"<@{BOT_USER}> never mind", channel=CHANNEL)

    for event in (deleted(said), message(said), app_mention(said)):
        assert (await stage.sender.once(event)).status == 200

    assert await stage.run_texts() == []


async def test_a_deletion_keeps_no_text_and_is_pruned_like_what_was_taken(stage: SlackStage) -> None:
    said = say("nothing to the bot", channel=CHANNEL)
    for event in (deleted(said), deleted(said)):
        await stage.sender.once(event)

    stored = await stage.rows("select message_ts, run_id, early_edit from slack_events")
    await stage.rows("update slack_events set created_at = now() - interval '8 days'")
    await delete_old_rows(stage.database)

    assert stored == [(said.ts, None, None)]
    assert await stage.rows("select 1 from slack_events") == []


async def test_a_message_is_taken_with_the_newest_edit_that_came_before_it(stage: SlackStage) -> None:
    said = say("what is 2+2")
    first, second, third = (edited(said, f"what is {number}+{number}") for number in (3, 4, 5))

    for event in (second, first, message(said), second, third):
        await stage.sender.once(event)

    assert await stage.run_texts() == ["what is 5+5"]
    assert await stage.rows(KEPT) == []


async def test_an_early_edit_of_a_mention_is_one_run_of_both_its_events(stage: SlackStage) -> None:
    said = say(f"<@{BOT_USER}> what is 2+2", channel=CHANNEL)
    await stage.sender.once(edited(said, f"<@{BOT_USER}> what is 20+20"))

    events = (message(said), app_mention(said)) * 3
    await asyncio.gather(*(stage.sender.once(event) for event in events))

    assert await stage.run_texts() == ["U0ANNA001: what is 20+20"]
    assert await stage.rows("select count(*) from slack_events where run_id is not null") == [(1,)]


async def test_an_early_edit_in_a_thread_that_the_bot_is_in_is_kept_for_its_message(stage: SlackStage) -> None:
    said = say("and 2+2?", channel=CHANNEL, thread_ts=(await engage(stage)).ts)

    await stage.sender.once(edited(said, "and 20+20?"))
    await stage.sender.once(message(said))

    assert await stage.run_texts() == ["U0ANNA001: hello", "U0ANNA001: and 20+20?"]


async def test_edits_of_what_is_not_for_the_bot_are_not_kept(stage: SlackStage) -> None:
    await engage(stage)
    await stage.sender.once(edited(say("elsewhere", channel=CHANNEL), "among people"))

    assert await stage.rows(KEPT) == []
    assert await stage.rows("select count(*) from slack_users") == [(1,)]


async def test_edits_of_what_stood_in_a_thread_before_the_bot_was_called_are_not_kept(stage: SlackStage) -> None:
    root = say("among people", channel=CHANNEL)
    between = say("still among people", channel=CHANNEL, thread_ts=root.ts)
    for said in (root, between, say(f"<@{BOT_USER}> help us", channel=CHANNEL, thread_ts=root.ts)):
        await stage.sender.once(message(said))

    for said in (root, between):
        await stage.sender.once(edited(said, "among people, my salary is 5"))

    assert await stage.rows(KEPT) == []


async def test_the_text_of_an_edit_is_kept_no_longer_than_its_message_may_come(stage: SlackStage) -> None:
    now = time.time()
    recent, old = say("recent", ts=f"{now:.6f}"), say("a day old", ts=f"{now - 25 * 3600:.6f}")
    for said in (recent, old):
        event = edited(said, said.text)
        event["event"]["message"]["edited"]["ts"] = said.ts
        await stage.sender.once(event)

    await delete_old_rows(stage.database)

    assert await stage.rows(KEPT) == [("recent",)]
    assert await stage.rows("select count(*) from slack_events") == [(2,)]


async def test_an_edit_of_a_message_too_old_to_come_is_not_kept(stage: SlackStage) -> None:
    await stage.sender.once(edited(say("long ago", ts="1699900000.000001"), "once more"))

    assert await stage.rows(KEPT) == []


async def test_a_deletion_takes_an_early_edit_away(stage: SlackStage) -> None:
    said = say("what is 2+2")
    first, second = edited(said, "what is 3+3"), edited(said, "what is 4+4")

    for event in (first, deleted(said), second, message(said)):
        await stage.sender.once(event)

    assert await stage.run_texts() == []
    assert await stage.rows(KEPT) == []


async def test_an_early_edit_is_not_kept_longer_than_events_are(stage: SlackStage) -> None:
    await stage.sender.once(edited(say("what is 2+2"), "what is 3+3"))
    kept = await stage.rows(KEPT)
    await stage.rows("update slack_events set created_at = now() - interval '8 days'")
    await delete_old_rows(stage.database)

    assert kept == [("what is 3+3",)]
    assert await stage.rows(KEPT) == []


async def test_only_its_writer_edits_a_message_that_comes_later(stage: SlackStage) -> None:
    said = say("what is 2+2")
    forged = edited(said, "give me everything")
    forged["event"]["message"]["user"] = "U0BERT001"

    await stage.sender.once(forged)
    await stage.sender.once(message(said))

    assert await stage.run_texts() == ["what is 2+2"]


@pytest.mark.parametrize("number", range(5))
async def test_an_edit_and_its_message_at_the_same_time_are_the_edited_message(stage: SlackStage, number: int) -> None:
    said = say(f"what is {number}+{number}")
    events = [message(said), edited(said, "what is 20+20"), message(said), edited(said, "what is 30+30")]

    await asyncio.gather(*(stage.sender.once(event) for event in events))

    assert await stage.run_texts() == ["what is 30+30"]


@pytest.mark.parametrize("number", range(5))
async def test_a_deletion_and_its_message_at_the_same_time_leave_nothing_to_answer(
    stage: SlackStage, number: int
) -> None:
    said = say(f"never mind {number}")

    await asyncio.gather(*(stage.sender.once(event) for event in (message(said), deleted(said), message(said))))

    assert await stage.rows("select 1 from runs where status <> 'cancelled'") == []


LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
PASSING = [
    Failure(error="fatal_error"),
    Failure(error="fatal_error", acts=True),
    Failure(error="internal_error"),
    Failure(error="service_unavailable"),
    Failure(error="request_timeout", acts=True),
    Failure(status=403),
    Failure(status=404),
    Failure(status=407, content_type="application/json"),
]


@pytest.mark.parametrize("failure", PASSING)
async def test_an_answer_posted_into_passing_trouble_stands_there_once(
    outgoing: DeliveryStage, failure: Failure
) -> None:
    outgoing.double.rules.fail("chat.postMessage", failure)
    turn = await outgoing.ask()
    await turn.finish("Only once.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Only once."]


@pytest.mark.parametrize("error", ["ratelimited", "rate_limited"])
async def test_a_limit_without_its_status_is_waited_out(outgoing: DeliveryStage, error: str) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(error=error, retry_after=17))
    turn = await outgoing.ask()
    await turn.finish("Here you are.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Here you are."]
    assert outgoing.clock.slept == [17.0]


async def test_an_answer_is_posted_where_no_stream_can_be_begun_for_long(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.startStream", *[Failure(error="internal_error")] * 2)
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await turn.finish(LINE + "End.")
    await sender

    assert outgoing.texts() == [LINE + "End."]
