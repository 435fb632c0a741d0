"""A message that Slack lets nobody edit any more: what it does not show is said in a further one."""

import pytest

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
UNEDITABLE = ["edit_window_closed", "cant_update_message", "message_not_owned_by_app"]


@pytest.mark.parametrize("error", UNEDITABLE)
async def test_the_rest_of_an_answer_follows_a_posted_message_that_can_no_longer_be_edited(
    outgoing: DeliveryStage, error: str
) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    outgoing.double.rules.fail("chat.update", Failure(error=error))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await turn.finish(LINE + "The end.")
    await sender

    assert outgoing.texts() == [LINE, "The end."]
    assert await outgoing.rows("select number, status from slack_parts order by number") == [
        (1, "closed"),
        (2, "closed"),
    ]


async def test_the_rest_follows_a_stream_that_slack_ended_and_lets_nobody_edit(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.stream_seconds = 60
    outgoing.double.rules.fail("chat.update", Failure(error="edit_window_closed"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    outgoing.clock.advance(61)
    await turn.finish(LINE + "The end.")
    await sender

    assert outgoing.texts() == [LINE, "The end."]


async def test_the_whole_is_said_again_behind_a_dead_senders_message_that_cannot_be_edited(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until_noted()
    await outgoing.crash()
    await turn.finish(LINE + "The end.")
    outgoing.double.rules.fail("chat.update", Failure(error="edit_window_closed"))

    await outgoing.deliver()

    assert outgoing.texts() == [LINE, LINE + "The end."]


async def test_parts_that_begin_at_the_same_place_are_not_emptied_by_who_follows(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until_noted()
    await outgoing.crash()
    outgoing.double.rules.fail("chat.update", Failure(error="edit_window_closed"))
    delivery = await outgoing.claim()
    await turn.finish(LINE + "The end.")
    await (await outgoing.start(delivery))
    await outgoing.free_again(delivery)

    await outgoing.deliver()

    assert outgoing.texts() == [LINE, LINE + "The end."]
