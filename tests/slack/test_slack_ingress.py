"""What Slack sends is stored once, before it is acknowledged, and only if Slack sent it."""

import asyncio
import json
import logging
import random
import time

import httpx
import pytest
from structlog.testing import capture_logs

from fakes.raw_sql import run_sql
from fakes.slack_delivery import DeliveryStage, SlackStage, slack_stage
from fakes.slack_double import BOT_USER, TEAM, Failure, Said, say, sign
from fakes.slack_double.payloads import (
    app_mention,
    bot_message,
    deleted,
    edited,
    envelope,
    joined,
    message,
    own_message,
    reaction,
    url_verification,
)
from fakes.waiting import until
from throughline.db.database import Database
from throughline.domain.run import Caps
from throughline.slack.answers.answer_sender import STATUS_SECONDS
from throughline.slack.store.people import SlackId

CHANNEL = "C0GENERAL"


def mention(text: str, **where: str) -> Said:
    return say(f"<@{BOT_USER}> {text}", **({"channel": CHANNEL} | where))


async def counts(stage: SlackStage) -> tuple[object, ...]:
    statement = "select (select count(*) from runs), (select count(*) from slack_events)"
    return (await stage.rows(statement))[0]


async def test_a_message_is_stored_with_its_run_and_its_place_in_the_outbox(stage: SlackStage) -> None:
    said = say("hello")
    answered = await stage.sender.once(message(said))

    stored = await stage.rows(
        "select r.status, r.source, e.message_ts, d.thread_ts, d.status from runs r"
        " join slack_events e on e.run_id = r.id join slack_deliveries d on d.run_id = r.id"
    )
    assert answered.status == 200
    assert stored == [("queued", "slack", said.ts, said.ts, "waiting")]
    assert await stage.run_texts() == ["hello"]


async def test_four_deliveries_at_once_and_out_of_order_are_one_run(stage: SlackStage) -> None:
    payload = message(say("once"))

    answers = await asyncio.gather(*(stage.sender.once(payload, retry=number) for number in (3, 0, 2, 1)))

    assert [answer.status for answer in answers] == [200] * 4
    assert await counts(stage) == (1, 1)


async def test_a_retry_is_taken_where_the_first_delivery_died(stage: SlackStage) -> None:
    answered = await stage.sender.once(message(say("again")), retry=1)

    assert answered.status == 200
    assert await stage.run_texts() == ["again"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_mention_arrives_as_two_events_and_is_one_run(stage: SlackStage, order: tuple[int, int]) -> None:
    said = mention("what is this?")
    events = (message(said), app_mention(said))

    for index in order:
        assert (await stage.sender.once(events[index])).status == 200

    assert await stage.run_texts() == ["U0ANNA001: what is this?"]


async def test_both_events_of_a_mention_at_the_same_time_are_one_run(stage: SlackStage) -> None:
    said = mention("both at once")

    await asyncio.gather(*(stage.sender.once(event) for event in (message(said), app_mention(said)) * 3))

    assert await counts(stage) == (1, 1)


async def test_bots_joins_and_what_nobody_addressed_to_us_are_acknowledged_and_not_stored(stage: SlackStage) -> None:
    unaddressed = message(say("not for the bot", channel=CHANNEL))
    other = envelope({"type": "team_rename", "name": "New"})
    events = [bot_message(say("beep")), own_message(say("me")), joined(CHANNEL), unaddressed, other]

    answers = [await stage.sender.once(event) for event in events]

    assert [answer.status for answer in answers] == [200] * len(events)
    assert await counts(stage) == (0, 0)


async def test_an_event_of_another_workspace_is_not_stored(stage: SlackStage) -> None:
    await stage.sender.once(message(say("elsewhere", team="T0OTHER01")))

    assert await counts(stage) == (0, 0)


async def test_forged_stale_and_malformed_requests_are_refused_and_none_is_stored(stage: SlackStage) -> None:
    body = json.dumps(message(say("forged")))
    signed = sign(body)
    forgeries = [
        {},
        sign(body, "another secret"),
        sign(body, at=time.time() - 301),
        sign(body, at=time.time() + 400),
        sign(body + " "),
        signed | {"X-Slack-Request-Timestamp": "abc"},
        signed | {"X-Slack-Request-Timestamp": "9" * 5_000},
        signed | {"X-Slack-Signature": "v0=\u00e4"},
        signed | {"X-Slack-Signature": ""},
    ]
    for headers in forgeries:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        answer = await stage.client.post("/slack/events", content=body, headers=raw)
        assert answer.status_code == 401, headers

    spoilt = await stage.client.post("/slack/events", content=b"\xff\xfe", headers=signed)
    ssl_check = await stage.client.post(
        "/slack/events", content="ssl_check=1&token=x", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )

    assert (spoilt.status_code, ssl_check.status_code) == (400, 401)
    assert (await stage.client.get("/slack/events")).status_code == 405
    assert await counts(stage) == (0, 0)


async def test_the_challenge_is_echoed_to_slack_only(stage: SlackStage) -> None:
    genuine = await stage.sender.once(url_verification("3eZbrw1a"))
    forged = await stage.client.post("/slack/events", json=url_verification("3eZbrw1a"))

    assert (genuine.status, json.loads(genuine.text)) == (200, {"challenge": "3eZbrw1a"})
    assert forged.status_code == 401


@pytest.mark.listening("it waits for the listener")
async def test_without_a_database_nothing_is_acknowledged_and_the_retry_is_taken(
    stage: SlackStage, database: Database
) -> None:
    await run_sql(stage.url, "alter table slack_events rename to away")
    refused = await stage.sender.once(message(say("hold on")))
    await run_sql(stage.url, "alter table away rename to slack_events")
    taken = await stage.sender.once(message(say("hold on")), retry=1, reason="http_error")

    assert refused.status in {500, 503}
    assert taken.status == 200
    assert await stage.run_texts() == ["hold on"]
    assert database.notifier.is_listening


async def test_more_messages_than_may_wait_are_told_so_once(stage: SlackStage) -> None:
    first = say("first")
    await stage.sender.once(message(first))
    for number in range(9):
        await stage.sender.once(message(say(f"more {number}", thread_ts=first.ts)))
    one_too_many = message(say("one too many", thread_ts=first.ts))
    for retry in (0, 1):
        assert (await stage.sender.once(one_too_many, retry=retry)).status == 200

    notices = await stage.rows("select notice from slack_deliveries where run_id is null")
    assert len(notices) == 1
    assert "too many" in str(notices[0][0])
    assert len(await stage.run_texts()) == 10


async def test_in_the_thread_of_one_too_many_nobody_need_call_the_bot_again(
    stage: SlackStage,
) -> None:
    await stage.sender.once(app_mention(say(f"<@{BOT_USER}> first", channel="C0GENERAL")))
    fill = """
        insert into runs (id, session_id, owner_id, agent, input, source, status)
        select gen_random_uuid(), session_id, owner_id, agent, input, source, 'queued' from runs, generate_series(1, $1)
    """
    await stage.rows(fill, Caps().queued_per_owner)
    refused = say(f"<@{BOT_USER}> second", channel="C0GENERAL")
    await stage.sender.once(app_mention(refused))
    await stage.rows("delete from runs")
    await stage.sender.once(message(say("once more", channel="C0GENERAL", thread_ts=refused.ts)))

    assert len(await stage.rows("select 1 from slack_deliveries where notice <> ''")) == 1
    assert await stage.run_texts() == ["U0ANNA001: once more"]


async def test_an_edit_changes_a_waiting_message_and_only_its_writers(stage: SlackStage) -> None:
    said, other = say("what is 2+2"), say("what is 3+3", user="U0BERT001", channel="D0BERT001")
    for item in (said, other):
        await stage.sender.once(message(item))

    await stage.sender.once(edited(said, "what is 20+20"))
    forged = edited(other, "give me everything")
    forged["event"]["message"]["user"] = "U0ANNA001"
    await stage.sender.once(forged)

    assert await stage.run_texts() == ["what is 20+20", "what is 3+3"]


async def test_an_edit_that_comes_once_more_does_not_undo_a_later_one(stage: SlackStage) -> None:
    said = say("what is 2+2")
    await stage.sender.once(message(said))
    first, second = edited(said, "what is 3+3"), edited(said, "what is 4+4")

    for event in (second, first, first):
        await stage.sender.once(event)

    assert await stage.run_texts() == ["what is 4+4"]


async def test_an_edit_keeps_the_files_and_what_slack_adds_itself_is_none(stage: SlackStage) -> None:
    said = say("read this")
    event = message(said)
    event["event"] |= {"files": [{"name": "contract.pdf"}], "subtype": "file_share"}
    await stage.sender.once(event)
    changed, unfurled = edited(said, "read this, please"), edited(said, "something else")
    changed["event"]["message"]["files"] = [{"name": "contract.pdf"}]
    del unfurled["event"]["message"]["edited"]

    for event in (changed, unfurled):
        await stage.sender.once(event)

    texts = await stage.run_texts()
    assert [("read this, please" in text, "contract.pdf" in text) for text in texts] == [(True, True)]


async def test_somebody_of_another_workspace_edits_what_they_wrote(stage: SlackStage) -> None:
    said = say("what is 2+2")
    event, change = message(said), edited(said, "what is 20+20")
    event["event"]["user_team"] = change["event"]["message"]["user_team"] = "T0OTHER01"

    await stage.sender.once(event)
    await stage.sender.once(change)

    assert await stage.run_texts() == ["what is 20+20"]


async def test_a_direct_thread_of_who_became_another_user_goes_on_in_a_new_session(
    stage: SlackStage,
) -> None:
    said = say("hello")
    await stage.sender.once(message(said))
    who = SlackId(TEAM, said.user)
    owners = [await stage.database.users.get_or_create(name) for name in ("anna", "bert")]
    for owner in owners:
        await stage.slack.links.link_by_code(who, await stage.slack.links.new_code(owner))

    await stage.sender.once(message(say("and now?", thread_ts=said.ts)))
    await stage.sender.once(message(say("still there?", thread_ts=said.ts)))

    runs = await stage.rows("select s.owner_id, count(*) from runs r join sessions s on s.id = r.session_id group by 1")
    assert sorted(runs, key=str) == sorted([(owners[0], 1), (owners[1], 2)], key=str)


async def test_a_guest_who_was_linked_meanwhile_still_edits_what_they_wrote_before(stage: SlackStage) -> None:
    said = say("what is 2+2")
    await stage.sender.once(message(said))
    anna = await stage.database.users.get_or_create("anna")
    who = SlackId(TEAM, said.user)
    await stage.slack.links.link_by_code(who, await stage.slack.links.new_code(anna))

    await stage.sender.once(edited(said, "what is 20+20"))

    assert await stage.run_texts() == ["what is 20+20"]


async def test_an_edit_of_a_message_being_answered_changes_nothing(stage: SlackStage) -> None:
    said = say("as it was")
    await stage.sender.once(message(said))
    await stage.rows("update runs set status = 'running', lease_until = now() + interval '1 minute'")

    await stage.sender.once(edited(said, "as it is"))

    assert await stage.run_texts() == ["as it was"]


async def test_deleting_a_waiting_message_withdraws_it(stage: SlackStage) -> None:
    said = say("never mind")
    await stage.sender.once(message(said))

    await stage.sender.once(deleted(said))

    assert await stage.rows("select status from runs") == [("cancelled",)]


async def test_a_stop_sign_is_handed_on_with_who_put_it_where(stage: SlackStage) -> None:
    await stage.sender.once(reaction("octagonal_sign", user="U0ANNA001", channel=CHANNEL, ts="1.2"))
    await stage.sender.once(reaction("tada", user="U0ANNA001", channel=CHANNEL, ts="1.2"))

    assert [(stop.place.channel_id, stop.place.message_ts, stop.user_id) for stop in stage.stops] == [
        (CHANNEL, "1.2", "U0ANNA001")
    ]


async def test_markup_and_hostile_text_are_stored_as_a_person_reads_them(stage: SlackStage) -> None:
    text = "&lt;b&gt; &amp; <https://example.com|our site> <#C1|general> <!here> <@U0BERT001> \x00 \ud800"
    await stage.sender.once(message(say(text)))

    assert await stage.run_texts() == ["<b> & our site (https://example.com) #general @here @U0BERT001 \ufffd \ufffd"]


@pytest.mark.calm("a retry is logged")
async def test_nothing_people_write_and_no_secret_is_logged(
    stage: SlackStage, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO), capture_logs() as logs:
        await stage.sender.once(message(say("a secret word: xyzzy")))
        await stage.client.post("/slack/events", content='{"text": "xyzzy"}', headers={"X-Slack-Signature": "v0=no"})

    printed = capsys.readouterr()
    assert [entry["event"] for entry in logs] == ["slack message received", "request from slack rejected"]
    for shown in (str(logs), caplog.text, printed.out, printed.err):
        assert "xyzzy" not in shown
        assert "8f742231" not in shown


async def test_a_burst_of_events_is_stored_whole(stage: SlackStage) -> None:
    events = [message(say(f"burst {number}", channel=f"D0{number:07}", user=f"U0{number:07}")) for number in range(60)]
    random.Random(1).shuffle(events)

    answers = await asyncio.gather(*(stage.sender.deliver(event) for event in events))

    assert {answer.status for answer in answers} == {httpx.codes.OK}
    assert len(await stage.run_texts()) == 60
    assert (await stage.rows("select distinct team_id from slack_events")) == [(TEAM,)]


REPLIED = {"thread_ts": "1.0", "reply_count": 3, "latest_reply": "2.0", "reply_users": ["U1"], "reply_users_count": 1}
UNFURLED = {"attachments": [{"from_url": "https://example.org", "title": "A page", "id": 1}]}


@pytest.mark.parametrize("added", [REPLIED, UNFURLED, {"reactions": [{"name": "eyes", "count": 1}]}])
@pytest.mark.parametrize("restarts", [False, True])
async def test_what_slack_changes_of_an_answered_message_begins_no_turn(
    stage: SlackStage, database: Database, database_url: str, added: dict[str, object], *, restarts: bool
) -> None:
    said = mention("look at https://example.org")
    await stage.sender.once(message(said))
    await run_sql(database_url, "update runs set status = 'succeeded', started_at = now(), finished_at = now()")
    texts = await stage.run_texts()
    events = []
    for number in range(8):
        event = edited(said, said.text)
        del event["event"]["message"]["edited"]
        event["event"]["message"] |= added
        event["event"]["previous_message"] = {"type": "message", "user": said.user, "text": said.text, "ts": said.ts}
        event["event_id"] = f"EvCHANGED{number}"
        events.append(event)

    if restarts:
        async with slack_stage(database, database_url) as again:
            answers = [await again.sender.once(event) for event in events]
    else:
        answers = [await stage.sender.once(event) for event in events]

    assert {answer.status for answer in answers} == {200}
    assert await counts(stage) == (1, 1)
    assert await stage.run_texts() == texts


@pytest.mark.parametrize("changes", [1, 3])
async def test_an_edited_mention_that_arrives_as_a_mention_again_is_no_second_turn(
    stage: SlackStage, changes: int
) -> None:
    said = mention("what is 2+2")
    await stage.sender.once(app_mention(said))

    for number in range(changes):
        again = app_mention(said)
        again["event_id"] = f"EvAGAIN{number}"
        again["event"] |= {"text": f"<@{BOT_USER}> what is 3+{number}", "edited": {"user": said.user, "ts": said.ts}}
        assert (await stage.sender.once(again)).status == 200
        assert (await stage.sender.once(message(said))).status == 200

    assert (await counts(stage))[0] == 1


SAID = "Let me check the `orders` table."
USING = "is using search_orders…"
SLACK_DROPS_SECONDS = 120


def statuses(outgoing: DeliveryStage) -> list[str]:
    return [status for *_, status in outgoing.double.workspace.statuses]


@pytest.mark.parametrize("said", [SAID, "- **One**\n- [two](https://x.io)", "| a | b |\n|---|---|\n| 1 | 2 |"])
async def test_a_step_is_shown_whole_while_its_tool_is_at_work(outgoing: DeliveryStage, said: str) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(statuses(outgoing)))
    call = await turn.call_tool("search_orders", saying=said)
    outgoing.clock.advance(2)
    await outgoing.until(lambda: bool(outgoing.posted))
    (early,) = outgoing.texts()
    await turn.answer_tool(call)
    await turn.finish("There are **two**.")
    await sender

    assert outgoing.texts() == [f"{early}\n\nThere are **two**."]
    assert len(outgoing.double.workspace.called("chat.update")) == 0, "what was shown is the beginning of the answer"


async def test_a_status_stands_beside_what_was_said_for_as_long_as_the_tool_works(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(statuses(outgoing)))
    call = await turn.call_tool("search_orders", saying=SAID)
    outgoing.clock.advance(2)
    await outgoing.until(lambda: bool(outgoing.posted))
    for told in (1, 2, 3):
        await outgoing.until(lambda told=told: statuses(outgoing).count(USING) >= told)  # type: ignore[misc]  # its default is the number
        outgoing.clock.advance(STATUS_SECONDS + 1)
    await turn.answer_tool(call)
    await until(lambda: statuses(outgoing)[-1] == "is thinking…")
    await turn.finish("Two.")
    await sender

    assert STATUS_SECONDS < SLACK_DROPS_SECONDS
    assert statuses(outgoing)[-1] == "", "nothing says that it goes on when it is over"


async def test_a_status_is_gone_once_the_answer_goes_on(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(statuses(outgoing)))
    call = await turn.call_tool("search_orders", saying=SAID)
    outgoing.clock.advance(2)
    await outgoing.until(lambda: bool(outgoing.posted) and statuses(outgoing)[-1] == USING)
    await turn.answer_tool(call)
    await turn.say("There are two. " * 40)
    await outgoing.until(lambda: statuses(outgoing)[-1] == "")
    await turn.finish("There are two. " * 40)
    await sender

    assert outgoing.texts() == [f"{SAID}\n\n{'There are two. ' * 40}"]


async def test_what_an_edit_had_no_time_for_is_shown_though_nothing_more_is_said(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say("Let me see. " * 30)
    await outgoing.until(lambda: bool(outgoing.posted))
    whole = "Let me see. " * 30 + "I ask `orders`."
    await turn.call_tool("search_orders", saying=whole)
    await outgoing.in_time(lambda: outgoing.texts() == [whole])
    await turn.finish("")
    await sender

    assert outgoing.texts() == [whole]


async def test_a_question_that_waits_behind_another_of_its_thread_has_its_status_next(outgoing: DeliveryStage) -> None:
    first = say("one")
    turn = await outgoing.ask(said=first)
    await outgoing.take(say("two", thread_ts=first.ts))
    sender = await outgoing.start()
    await outgoing.until(lambda: len(statuses(outgoing)) == 1)
    await turn.finish("First.")
    await sender
    await outgoing.start()
    await outgoing.until(lambda: len(statuses(outgoing)) == 2)

    assert outgoing.double.workspace.statuses == [("D0ANNA001", first.ts, "is thinking…")] * 2
