"""Slack's passing troubles, however it tells them, cost no answer and double none."""

import pytest

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure

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
