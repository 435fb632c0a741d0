"""Slack delivers in any order: an edit or a deletion may come before the message that it is about."""

import asyncio
import time

import pytest

from fakes.old_rows import delete_old_rows
from fakes.slack_double import BOT_USER, Said, say
from fakes.slack_double.payloads import app_mention, deleted, edited, message
from fakes.slack_stage import SlackStage

CHANNEL = "C0GENERAL"
KEPT = "select early_edit ->> 'text' from slack_events where early_edit is not null"


async def engage(door: SlackStage) -> Said:
    """Mention the bot in a channel; its thread is answered from then on."""
    said = say(f"<@{BOT_USER}> hello", channel=CHANNEL)
    await door.sender.once(message(said))
    return said


async def test_a_message_that_was_deleted_before_it_came_is_not_answered(door: SlackStage) -> None:
    said = say(f"<@{BOT_USER}> never mind", channel=CHANNEL)

    for event in (deleted(said), message(said), app_mention(said)):
        assert (await door.sender.once(event)).status == 200

    assert await door.run_texts() == []


async def test_a_deletion_keeps_no_text_and_is_pruned_like_what_was_taken(door: SlackStage) -> None:
    said = say("nothing to the bot", channel=CHANNEL)
    for event in (deleted(said), deleted(said)):
        await door.sender.once(event)

    stored = await door.rows("select message_ts, run_id, early_edit from slack_events")
    await door.rows("update slack_events set created_at = now() - interval '8 days'")
    await delete_old_rows(door.database)

    assert stored == [(said.ts, None, None)]
    assert await door.rows("select 1 from slack_events") == []


async def test_a_message_is_taken_with_the_newest_edit_that_came_before_it(door: SlackStage) -> None:
    said = say("what is 2+2")
    first, second, third = (edited(said, f"what is {number}+{number}") for number in (3, 4, 5))

    for event in (second, first, message(said), second, third):
        await door.sender.once(event)

    assert await door.run_texts() == ["what is 5+5"]
    assert await door.rows(KEPT) == []


async def test_an_early_edit_of_a_mention_is_one_run_of_both_its_events(door: SlackStage) -> None:
    said = say(f"<@{BOT_USER}> what is 2+2", channel=CHANNEL)
    await door.sender.once(edited(said, f"<@{BOT_USER}> what is 20+20"))

    events = (message(said), app_mention(said)) * 3
    await asyncio.gather(*(door.sender.once(event) for event in events))

    assert await door.run_texts() == ["U0ANNA001: what is 20+20"]
    assert await door.rows("select count(*) from slack_events where run_id is not null") == [(1,)]


async def test_an_early_edit_in_a_thread_that_the_bot_is_in_is_kept_for_its_message(door: SlackStage) -> None:
    said = say("and 2+2?", channel=CHANNEL, thread_ts=(await engage(door)).ts)

    await door.sender.once(edited(said, "and 20+20?"))
    await door.sender.once(message(said))

    assert await door.run_texts() == ["U0ANNA001: hello", "U0ANNA001: and 20+20?"]


async def test_edits_of_what_is_not_for_the_bot_are_not_kept(door: SlackStage) -> None:
    await engage(door)
    await door.sender.once(edited(say("elsewhere", channel=CHANNEL), "among people"))

    assert await door.rows(KEPT) == []
    assert await door.rows("select count(*) from slack_users") == [(1,)]


async def test_edits_of_what_stood_in_a_thread_before_the_bot_was_called_are_not_kept(door: SlackStage) -> None:
    root = say("among people", channel=CHANNEL)
    between = say("still among people", channel=CHANNEL, thread_ts=root.ts)
    for said in (root, between, say(f"<@{BOT_USER}> help us", channel=CHANNEL, thread_ts=root.ts)):
        await door.sender.once(message(said))

    for said in (root, between):
        await door.sender.once(edited(said, "among people, my salary is 5"))

    assert await door.rows(KEPT) == []


async def test_the_text_of_an_edit_is_kept_no_longer_than_its_message_may_come(door: SlackStage) -> None:
    now = time.time()
    recent, old = say("recent", ts=f"{now:.6f}"), say("a day old", ts=f"{now - 25 * 3600:.6f}")
    for said in (recent, old):
        event = edited(said, said.text)
        event["event"]["message"]["edited"]["ts"] = said.ts
        await door.sender.once(event)

    await delete_old_rows(door.database)

    assert await door.rows(KEPT) == [("recent",)]
    assert await door.rows("select count(*) from slack_events") == [(2,)]


async def test_an_edit_of_a_message_too_old_to_come_is_not_kept(door: SlackStage) -> None:
    await door.sender.once(edited(say("long ago", ts="1699900000.000001"), "once more"))

    assert await door.rows(KEPT) == []


async def test_a_deletion_takes_an_early_edit_away(door: SlackStage) -> None:
    said = say("what is 2+2")
    first, second = edited(said, "what is 3+3"), edited(said, "what is 4+4")

    for event in (first, deleted(said), second, message(said)):
        await door.sender.once(event)

    assert await door.run_texts() == []
    assert await door.rows(KEPT) == []


async def test_an_early_edit_is_not_kept_longer_than_events_are(door: SlackStage) -> None:
    await door.sender.once(edited(say("what is 2+2"), "what is 3+3"))
    kept = await door.rows(KEPT)
    await door.rows("update slack_events set created_at = now() - interval '8 days'")
    await delete_old_rows(door.database)

    assert kept == [("what is 3+3",)]
    assert await door.rows(KEPT) == []


async def test_only_its_writer_edits_a_message_that_comes_later(door: SlackStage) -> None:
    said = say("what is 2+2")
    forged = edited(said, "give me everything")
    forged["event"]["message"]["user"] = "U0BERT001"

    await door.sender.once(forged)
    await door.sender.once(message(said))

    assert await door.run_texts() == ["what is 2+2"]


@pytest.mark.parametrize("number", range(5))
async def test_an_edit_and_its_message_at_the_same_time_are_the_edited_message(door: SlackStage, number: int) -> None:
    said = say(f"what is {number}+{number}")
    events = [message(said), edited(said, "what is 20+20"), message(said), edited(said, "what is 30+30")]

    await asyncio.gather(*(door.sender.once(event) for event in events))

    assert await door.run_texts() == ["what is 30+30"]


@pytest.mark.parametrize("number", range(5))
async def test_a_deletion_and_its_message_at_the_same_time_leave_nothing_to_answer(
    door: SlackStage, number: int
) -> None:
    said = say(f"never mind {number}")

    await asyncio.gather(*(door.sender.once(event) for event in (message(said), deleted(said), message(said))))

    assert await door.rows("select 1 from runs where status <> 'cancelled'") == []
