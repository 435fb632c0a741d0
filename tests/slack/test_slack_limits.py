"""Calls that Slack limits come through one behind the other, in few tries, and nobody overtakes them."""

import asyncio

import pytest

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure, Limit
from fakes.waiting import until
from throughline.slack.web_api import SlackLimited, SlackWebApi, Thread

MANY = 100


async def post(calls: SlackWebApi, number: int, channel: str = "C0GENERAL") -> str:
    return await calls.post(Thread(channel, "1700000001.000001", "U0ANNA001", "T0DOUBLE1"), f"{number}", {})


async def test_a_hundred_posts_into_a_limited_channel_need_few_calls(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits["chat.postMessage"] = Limit(1, 1)

    posts = await asyncio.gather(*(post(outgoing.services.calls, number) for number in range(MANY)))

    assert len(set(posts)) == MANY
    assert len(outgoing.double.workspace.called("chat.postMessage")) <= 4 * MANY


async def test_who_waits_in_a_line_that_moves_is_not_sent_away(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits["chat.postMessage"] = Limit(1, 10, retry_after=10)

    posts = await asyncio.gather(*(post(outgoing.services.calls, number) for number in range(MANY)))

    assert len(set(posts)) == MANY
    assert outgoing.clock.monotonic() > 600


async def test_a_line_in_which_nobody_comes_through_gives_up(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits["chat.postMessage"] = Limit(0, 60, retry_after=60)

    outcomes = await asyncio.gather(
        *(post(outgoing.services.calls, number) for number in range(20)), return_exceptions=True
    )

    assert {type(outcome) for outcome in outcomes} == {SlackLimited}
    assert len(outgoing.double.workspace.called("chat.postMessage")) <= 20 + 10


async def test_a_limit_in_one_channel_holds_up_no_other(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.postMessage", Failure(status=429, retry_after=30))

    await post(outgoing.services.calls, 1, "C0BUSY001")
    slept = list(outgoing.clock.slept)
    await post(outgoing.services.calls, 2, "C0QUIET01")

    assert slept == outgoing.clock.slept == [30.0]


async def test_a_shorter_pause_named_later_does_not_end_a_longer_one(outgoing: DeliveryStage) -> None:
    failures = [Failure(status=429, retry_after=seconds) for seconds in (50, 2, 2)]
    outgoing.double.rules.fail("chat.postMessage", *failures)

    await asyncio.gather(*(post(outgoing.services.calls, number) for number in range(3)))

    times = [call.at for call in outgoing.double.workspace.called("chat.postMessage") if call.outcome == "ok"]
    assert min(times) >= 50


async def test_a_call_that_may_be_left_out_does_not_stand_in_line(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("assistant.threads.setStatus", Failure(status=429, retry_after=30))
    calls = outgoing.services.calls
    with pytest.raises(SlackLimited):
        await calls.set_status("D0ANNA001", "1.1", "is thinking…")
    outgoing.clock.advance(31)
    outgoing.double.rules.fail("assistant.threads.setStatus", *[Failure(status=429, retry_after=30)])

    tries = [calls.set_status("D0ANNA001", "1.1", "is thinking…") for _ in range(30)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {SlackLimited}
    await until(lambda: len(outgoing.double.workspace.called("assistant.threads.setStatus")) == 2)
