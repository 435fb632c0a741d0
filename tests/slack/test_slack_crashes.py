"""A sender may die anywhere, and Slack may lose any answer of its own: each answer stands in its thread once."""

import pytest

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure
from throughline.domain.errors import LeaseLost
from throughline.domain.events import AnswerReset
from throughline.slack.web_api import SlackUnsure, Thread

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
LOST = Failure(drops=True, acts=True)
CUT = Failure(drops=True)
BROKEN = Failure(status=503)
DONE_AND_BROKEN = Failure(status=500, acts=True)
TROUBLES = [LOST, CUT, BROKEN, DONE_AND_BROKEN]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_answer_posted_in_trouble_stands_there_once(outgoing: DeliveryStage, trouble: Failure) -> None:
    outgoing.double.rules.fail("chat.postMessage", trouble)
    turn = await outgoing.ask()
    await turn.finish("Only once.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Only once."]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("method", ["chat.startStream", "chat.appendStream", "chat.stopStream"])
async def test_a_stream_in_trouble_ends_whole_and_once(outgoing: DeliveryStage, method: str, trouble: Failure) -> None:
    outgoing.double.rules.fail(method, trouble)
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: LINE in outgoing.texts())
    await turn.say(LINE)
    await outgoing.in_time(lambda: LINE * 2 in outgoing.texts())
    await turn.finish(LINE * 2 + "End.")
    await sender

    assert outgoing.texts() == [LINE * 2 + "End."]
    assert not outgoing.posted[0].is_streaming


async def test_a_sender_that_dies_before_anything_is_posted_is_followed_by_one_that_posts(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
    await outgoing.crash()
    await turn.finish("Here.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Here."]


async def test_a_sender_that_dies_between_posting_and_noting_is_followed_by_one_that_looks(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await turn.finish("Posted, not noted.")
    delivery = await outgoing.claim()
    await outgoing.slack.outbox.begin_part(delivery.lease, 1, starts=0)
    await outgoing.services.calls.start_stream(
        Thread("D0ANNA001", delivery.thread_ts, "U0ANNA001", "T0DOUBLE1"), "Posted, "
    )
    await outgoing.crash()

    await outgoing.deliver()

    assert outgoing.texts() == ["Posted, not noted."]
    assert "conversations.replies" in outgoing.methods()


async def test_a_sender_that_dies_before_posting_is_followed_by_one_that_posts(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await turn.finish("Noted, not posted.")
    delivery = await outgoing.claim()
    await outgoing.slack.outbox.begin_part(delivery.lease, 1, starts=0)
    await outgoing.crash()

    await outgoing.deliver()

    assert outgoing.texts() == ["Noted, not posted."]


async def test_a_sender_that_dies_in_mid_stream_is_followed_by_one_that_ends_the_message(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await outgoing.crash()
    sender = await outgoing.start()
    await turn.say(LINE)
    await turn.finish(LINE * 2)
    await sender

    assert outgoing.texts() == [LINE * 2]
    assert not outgoing.posted[0].is_streaming


async def test_a_sender_that_dies_in_a_long_answer_is_followed_by_one_that_adds_the_rest(
    outgoing: DeliveryStage,
) -> None:
    answer = "".join(f"{number} {LINE}" for number in range(60))
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(answer[:15_000])
    await outgoing.until(lambda: len(outgoing.posted) == 2)
    await outgoing.crash()
    await turn.say(answer[15_000:])
    await turn.finish(answer)

    await outgoing.deliver()

    assert "".join(outgoing.texts()) == answer
    assert len({message.ts for message in outgoing.posted}) == len(outgoing.posted)


async def test_a_sender_that_dies_after_the_last_call_leaves_nothing_to_double(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("Said and done.")
    delivery = await outgoing.claim()
    await (await outgoing.start(delivery))
    await outgoing.free_again(delivery)

    await outgoing.deliver()

    assert outgoing.texts() == ["Said and done."]


async def test_a_sender_that_was_passed_over_writes_nothing_any_more(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    late = await outgoing.claim()
    await outgoing.crash()
    await turn.finish("Mine.")
    await outgoing.deliver()

    with pytest.raises(LeaseLost):
        await (await outgoing.start(late))

    assert outgoing.texts() == ["Mine."]


async def test_an_answer_that_somebody_deleted_is_not_posted_again(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until_noted()
    await outgoing.crash()
    outgoing.double.workspace.posted.clear()
    await turn.finish(LINE)

    await outgoing.deliver()

    assert outgoing.texts() == []


async def test_an_edit_is_tried_again_and_given_up_for_now_where_slack_stays_in_trouble(
    outgoing: DeliveryStage,
) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    outgoing.double.rules.fail("chat.update", *[BROKEN] * 3)
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await turn.finish(LINE + "End.")
    with pytest.raises(SlackUnsure):
        await sender
    await outgoing.crash()

    await outgoing.deliver()

    assert outgoing.texts() == [LINE + "End."]


async def test_messages_that_a_second_attempt_does_not_need_are_withdrawn(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE * 30)
    await outgoing.until(lambda: len(outgoing.posted) == 2)
    await turn.emit(AnswerReset(2))
    await turn.say("Shorter this time.")
    await turn.finish("Shorter this time.")
    await sender

    assert outgoing.texts() == ["Shorter this time.", "_(withdrawn)_"]


async def test_where_slack_does_not_let_us_look_an_answer_is_rather_doubled_than_lost(
    outgoing: DeliveryStage,
) -> None:
    outgoing.double.rules.fail("chat.postMessage", LOST)
    outgoing.double.rules.fail("conversations.replies", Failure(error="missing_scope"))
    turn = await outgoing.ask()
    await turn.finish("Twice, then.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Twice, then."] * 2
