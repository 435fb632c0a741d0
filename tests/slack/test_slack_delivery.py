"""How an answer gets into its thread: streamed, posted or edited, whole and once."""

import asyncio

import pytest

from fakes.conversations import claim_next
from fakes.event_log import MESSAGE_ID
from fakes.slack_delivery import CLAIMER, DeliveryStage, PlayedTurn, dispatcher_of
from fakes.slack_double import BOT_USER, TIERS, Failure, Limit, say
from fakes.waiting import HANG_SECONDS
from throughline.domain.events import AnswerReset, ToolCalled
from throughline.domain.message import ToolCall
from throughline.domain.run import RunStatus
from throughline.slack.answers.answer_sender import AnswerSender
from throughline.slack.answers.dispatcher import Dispatcher, DispatcherConfig
from throughline.slack.store.outbox import Delivery, DeliveryClaim
from throughline.slack.web_api import SlackRefused

WORDS = "The quick brown fox jumps over the lazy dog. " * 10
LINE = WORDS.strip() + "\n"


async def shown(outgoing: DeliveryStage, turn: PlayedTurn, text: str) -> None:
    """Let the turn say something and the sender try to show it."""
    before = _writes(outgoing)
    await turn.say(text)
    await outgoing.until(lambda: _writes(outgoing) > before)


def _writes(outgoing: DeliveryStage) -> int:
    return sum(1 for method in outgoing.methods() if method.startswith("chat."))


async def test_an_answer_that_is_ready_is_posted_in_one_call(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask(said=say("hi", ts="1700000001.000001"))
    await turn.finish("Hello **you**.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Hello **you**."]
    assert outgoing.methods() == ["chat.postMessage"]
    assert outgoing.posted[0].thread_ts == "1700000001.000001"


async def test_an_answer_that_grows_is_streamed_behind_a_status(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
    await shown(outgoing, turn, LINE)
    await shown(outgoing, turn, LINE)
    assert outgoing.posted[0].is_streaming
    await turn.say("The end.")
    await turn.finish(LINE + LINE + "The end.")
    await sender

    assert outgoing.texts() == [LINE + LINE + "The end."]
    assert outgoing.methods() == [
        "assistant.threads.setStatus",
        "chat.startStream",
        "chat.appendStream",
        "chat.stopStream",
    ]
    assert outgoing.posted[0].metadata is not None
    assert not outgoing.posted[0].is_streaming


async def test_the_status_names_the_tool_at_work(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.emit(ToolCalled(ToolCall(id="c1", name="calculator", arguments="{}"), MESSAGE_ID))
    await outgoing.until(lambda: any("calculator" in status for *_, status in outgoing.double.workspace.statuses))
    await turn.finish("42")
    await sender

    assert outgoing.texts() == ["42"]


async def test_streams_into_a_channel_name_their_reader(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask(said=say(f"<@{BOT_USER}> hi", channel="C0GENERAL"))
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    await turn.finish(LINE)
    await sender

    started = outgoing.double.workspace.called("chat.startStream")[0]
    assert (started.outcome, started.args["recipient_user_id"]) == ("ok", "U0ANNA001")


async def test_a_stream_is_renewed_before_slack_ends_it(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    said = ""
    for minute in range(8):
        said += f"Minute {minute}. {LINE}"
        await shown(outgoing, turn, f"Minute {minute}. {LINE}")
        outgoing.clock.advance(60)
    await turn.finish(said)
    await sender

    assert "".join(outgoing.texts()) == said
    assert len(outgoing.posted) == 2
    assert {call.outcome for call in outgoing.double.workspace.calls} == {"ok"}


async def test_a_stream_that_slack_ended_is_edited_to_its_end(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.stream_seconds = 60
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    outgoing.clock.advance(61)
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.double.workspace.called("chat.update")))
    await turn.finish(LINE + LINE + "Done.")
    await sender

    assert outgoing.texts() == [LINE + LINE + "Done."]
    assert outgoing.double.workspace.called("chat.appendStream")[0].outcome == "message_not_in_streaming_state"


async def test_a_stream_that_ended_before_its_stop_is_no_error_to_anybody(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.stream_seconds = 60
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    outgoing.clock.advance(61)
    await turn.finish(LINE)
    await sender

    assert outgoing.texts() == [LINE]


async def test_where_slack_takes_no_stream_the_answer_is_posted_and_edited(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    said = LINE
    async with asyncio.timeout(HANG_SECONDS):
        while not outgoing.double.workspace.called("chat.update"):  # its pause begins after the post
            outgoing.clock.advance(5)
            await turn.say(LINE)
            said += LINE
            await asyncio.sleep(0.05)
    await turn.finish(said + "End")
    await sender

    assert outgoing.texts() == [said + "End"]


async def test_edits_keep_a_pause_between_them(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    for _ in range(20):
        await turn.say(LINE)
    await turn.finish(LINE * 21)
    await sender

    assert outgoing.texts() == [LINE * 21]
    assert outgoing.posted[0].edits <= 2


async def test_a_limit_on_streams_lets_the_answer_be_posted_at_once(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(status=429, retry_after=30))
    for _ in range(2):
        turn = await outgoing.ask()
        sender = await outgoing.start()
        await shown(outgoing, turn, LINE)
        await outgoing.until(lambda: bool(outgoing.posted))
        await turn.finish(LINE)
        await sender

    assert outgoing.texts() == [LINE, LINE]
    assert len(outgoing.double.workspace.called("chat.startStream")) == 1, "the pause Slack named is kept"


async def test_other_limits_are_waited_out_as_slack_asks(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(status=429, retry_after=17))
    turn = await outgoing.ask()
    await turn.finish("Here you are.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Here you are."]
    assert outgoing.clock.slept == [17.0]


async def test_under_slacks_own_limits_every_answer_arrives(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits |= {**TIERS, "chat.postMessage": Limit(1, 1)}
    for number in range(30):
        turn = await outgoing.ask(said=say(f"question {number}"))
        await turn.finish(f"answer {number}")
        await outgoing.deliver()

    assert outgoing.texts() == [f"answer {number}" for number in range(30)]


async def test_a_very_long_answer_becomes_several_messages_cut_at_paragraphs(outgoing: DeliveryStage) -> None:
    paragraph = "Sentence after sentence. " * 30
    answer = "\n\n".join(f"Paragraph {number}. {paragraph}" for number in range(40))
    assert len(answer) > 30_000
    turn = await outgoing.ask()
    sender = await outgoing.start()
    for start in range(0, len(answer), 500):
        await turn.say(answer[start : start + 500])
    await turn.finish(answer)
    await sender

    assert "".join(outgoing.texts()) == answer
    assert len(outgoing.posted) >= 3
    assert all(len(text) <= 10_000 for text in outgoing.texts())


async def test_code_that_is_cut_stays_code(outgoing: DeliveryStage) -> None:
    answer = "Look:\n```python\n" + "".join(f"line_{number} = {number}\n" for number in range(1_000)) + "```\nDone."
    turn = await outgoing.ask()
    await turn.finish(answer)

    await outgoing.deliver()

    assert len(outgoing.posted) == 2
    assert all(text.count("```") == 2 for text in outgoing.texts())
    assert "line_999 = 999" in outgoing.texts()[1]


async def test_a_failed_turn_is_told_in_a_sentence_behind_what_was_shown(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    await turn.finish("", status=RunStatus.FAILED, error="The model did not answer in time.\nTraceback: x")
    await sender

    assert outgoing.texts() == [f"{LINE}\n\n:warning: The model did not answer in time. Traceback: x"]


async def test_a_stopped_answer_keeps_what_was_said(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    await turn.finish(LINE, status=RunStatus.CANCELLED)
    await sender

    assert outgoing.texts() == [f"{LINE}\n\n_Stopped._"]


async def test_a_second_attempt_of_a_turn_is_written_over_the_first(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await shown(outgoing, turn, LINE)
    await turn.emit(AnswerReset(2))
    await turn.say("Something else altogether.")
    await turn.finish("Something else altogether.")
    await sender

    assert outgoing.texts() == ["Something else altogether."]


async def test_a_channel_that_is_gone_ends_the_delivery(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(error="is_archived"))
    turn = await outgoing.ask()
    await turn.finish("anybody?")

    with pytest.raises(SlackRefused, match="is_archived"):
        await outgoing.deliver()


async def test_answers_of_one_thread_are_delivered_in_their_order(outgoing: DeliveryStage) -> None:
    first = say("one")
    turn = await outgoing.ask(said=first)
    await outgoing.take(say("two", thread_ts=first.ts))

    delivery = await outgoing.claim()
    assert await outgoing.slack.outbox.claim(DeliveryClaim("another", limit=5, lease_seconds=60)) == ()
    await turn.finish("first answer")
    await (await outgoing.start(delivery))

    (second,) = await outgoing.slack.outbox.claim(DeliveryClaim("another", limit=5, lease_seconds=60))
    assert second.thread_ts == first.ts


@pytest.mark.parametrize("is_shown_before", [False, True])
async def test_a_message_that_comes_during_an_answer_waits_and_is_answered_below_it(
    outgoing: DeliveryStage, *, is_shown_before: bool
) -> None:
    first = say("one")
    turn = await outgoing.ask(said=first)
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
    if is_shown_before:
        await shown(outgoing, turn, LINE)
    await outgoing.take(say("no, two", thread_ts=first.ts))
    assert await claim_next(outgoing.database.runs, CLAIMER) is None
    if not is_shown_before:
        await shown(outgoing, turn, LINE)
    await turn.finish(LINE + "One.")
    await sender
    claimed = await claim_next(outgoing.database.runs, CLAIMER)
    assert claimed is not None
    await PlayedTurn(outgoing.database, claimed).finish("Two.")
    await outgoing.deliver()

    assert claimed.run.input.content == "no, two"
    assert outgoing.texts() == [LINE + "One.", "Two."]
    assert {message.thread_ts for message in outgoing.posted} == {first.ts}


async def test_a_sender_waits_for_the_turn_without_a_database_connection(outgoing: DeliveryStage) -> None:
    turns = [await outgoing.ask(said=say(f"slow {number}")) for number in range(12)]
    senders = [await outgoing.start() for _ in turns]
    await outgoing.until(lambda: len(outgoing.double.workspace.statuses) == 12)
    for number, turn in enumerate(turns):
        await turn.finish(f"answer {number}")
    await asyncio.gather(*senders)

    assert sorted(outgoing.texts()) == sorted(f"answer {number}" for number in range(12))


TROUBLES = [Failure(error=word) for word in ("token_revoked", "account_inactive", "invalid_auth", "internal_error")]


def fail_once(outgoing: DeliveryStage, failure: Failure) -> None:
    """Let one delivery fail: what may have been done is tried three times before it is put off."""
    outgoing.double.rules.fail("chat.postMessage", *[failure] * (3 if failure.error == "internal_error" else 1))


def noted(trouble: Failure) -> str:
    """Return what stands in the outbox for it."""
    return "slack_unsure" if trouble.error == "internal_error" else trouble.error


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_answer_of_this_day_is_kept_however_often_it_was_tried(
    outgoing: DeliveryStage, trouble: Failure
) -> None:
    fail_once(outgoing, trouble)
    turn = await outgoing.ask()
    await turn.finish("When you are back.")
    await outgoing.rows("update slack_deliveries set attempt = 2000")
    await outgoing.rows("update runs set finished_at = now() - interval '23 hours'")

    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("waiting", noted(trouble))
    await outgoing.rows("update slack_deliveries set next_try_at = now()")
    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("delivered", "")

    assert outgoing.texts() == ["When you are back."]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_answer_that_is_older_than_a_day_is_given_up(outgoing: DeliveryStage, trouble: Failure) -> None:
    fail_once(outgoing, trouble)
    turn = await outgoing.ask()
    await turn.finish("Nobody waits for this.")
    await outgoing.rows("update runs set finished_at = now() - interval '25 hours'")

    async with dispatcher_of(outgoing).running():
        await outgoing.until(lambda: bool(outgoing.posted))
        await outgoing.until_stored("failed", noted(trouble))

    [told] = outgoing.texts()
    assert told.startswith(":warning: The answer could not be shown here: ")


async def test_a_turn_that_took_long_gives_its_answer_the_whole_day(outgoing: DeliveryStage) -> None:
    fail_once(outgoing, TROUBLES[0])
    turn = await outgoing.ask()
    await outgoing.rows("update slack_deliveries set created_at = now() - interval '30 hours'")
    await turn.finish("It took a while.")

    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("waiting", "token_revoked")
    await outgoing.rows("update slack_deliveries set next_try_at = now()")
    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("delivered", "")

    assert outgoing.texts() == ["It took a while."]


async def test_the_pause_is_no_shorter_than_the_one_slack_names(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(status=429, retry_after=3_600))
    turn = await outgoing.ask()
    await turn.finish("In an hour.")

    async with dispatcher_of(outgoing).running():
        await outgoing.until_stored("waiting", "slack_limited")

    [(due,)] = await outgoing.rows("select next_try_at > now() + interval '50 minutes' from slack_deliveries")
    assert due


async def test_what_is_given_back_at_a_shutdown_counts_as_no_attempt(outgoing: DeliveryStage) -> None:
    await outgoing.ask()
    async with dispatcher_of(outgoing).running():
        await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))

    assert await outgoing.rows("select status, attempt from slack_deliveries") == [("waiting", 0)]


async def test_an_answer_refused_for_good_is_told_of_in_its_thread_once(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(error="invalid_blocks"))
    turn = await outgoing.ask()
    await turn.finish("Too much for Slack.")

    async with dispatcher_of(outgoing).running():
        await outgoing.until(lambda: bool(outgoing.posted))
        await outgoing.until_stored("failed", "invalid_blocks")

    [told] = outgoing.texts()
    assert told.startswith(":warning: The answer could not be shown here: Slack refused it (`invalid_blocks`); ")
    assert str(turn.claimed.run.session_id) in told


class WatchingSender(AnswerSender):
    """Notes whether the delivery was over when its failure was told."""

    def __init__(self, outgoing: DeliveryStage) -> None:
        super().__init__(outgoing.database.followed_runs, outgoing.services)
        self.outbox = outgoing.slack.outbox
        self.was_over: list[bool] = []

    async def tell_failed(self, delivery: Delivery, reason: str) -> None:
        self.was_over.append(await self.outbox.is_over(delivery.lease))
        await super().tell_failed(delivery, reason)


async def test_a_failure_is_told_under_the_lease(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(error="invalid_blocks"))
    turn = await outgoing.ask()
    await turn.finish("Too much for Slack.")
    sender = WatchingSender(outgoing)

    async with Dispatcher(outgoing.slack.outbox, sender, DispatcherConfig("one", 1, HANG_SECONDS)).running():
        await outgoing.until_stored("failed", "invalid_blocks")

    assert sender.was_over == [False]


async def test_what_is_told_of_a_failure_is_not_taken_for_the_next_answer(outgoing: DeliveryStage) -> None:
    first = say("one")
    outgoing.double.rules.fail("chat.postMessage", Failure(error="invalid_blocks"))
    turn = await outgoing.ask(said=first)
    await turn.finish("Too much for Slack.")
    async with dispatcher_of(outgoing).running():
        await outgoing.until(lambda: bool(outgoing.posted))
        await outgoing.until_stored("failed", "invalid_blocks")
    outgoing.double.rules.fail("chat.postMessage", Failure(status=503))
    second = await outgoing.ask(said=say("two", thread_ts=first.ts))
    await second.finish("Fine again.")

    await outgoing.deliver()

    assert outgoing.texts()[1:] == ["Fine again."]
