"""When a delivery is given up: by the age of its answer, not by how often it was tried."""

import pytest

from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import Failure, say
from fakes.waiting import HANG_SECONDS
from throughline.db.slack.outbox import Delivery
from throughline.slack.answer_sender import AnswerSender
from throughline.slack.dispatcher import Dispatcher, DispatcherConfig

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
