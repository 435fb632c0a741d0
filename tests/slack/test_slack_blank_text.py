"""Slack takes no text that shows nothing: none is sent, and an answer with much white space arrives."""

import pytest

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure
from throughline.domain.run import RunStatus

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"


@pytest.mark.parametrize("streams", [True, False])
async def test_an_answer_that_begins_with_line_breaks_arrives(outgoing: DeliveryStage, *, streams: bool) -> None:
    if not streams:
        outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say("\n\n")
    await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
    outgoing.clock.advance(2)
    await turn.say("\n \n")
    await turn.say("\n" + LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await turn.finish("\n\n\n \n\n" + LINE + "End.")
    await sender

    assert outgoing.texts() == [LINE + "End."]
    refused = [call for call in outgoing.double.workspace.calls if call.outcome == "no_text"]
    assert refused == []


async def test_white_space_that_would_be_a_message_of_its_own_is_left_out(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("x" * 9_999 + "\n" * 5_000)

    await outgoing.deliver()

    assert [text.strip() for text in outgoing.texts()] == ["x" * 9_999]


async def test_white_space_longer_than_a_message_does_not_end_the_answer(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("Before." + "\n" * 30_000 + "Behind.")

    await outgoing.deliver()

    assert [text.strip() for text in outgoing.texts()] == ["Before.", "Behind."]


async def test_pieces_of_white_space_within_a_stream_go_with_the_words_behind_them(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    outgoing.clock.advance(2)
    await turn.say("\n\n\n")
    await turn.say(LINE)
    await outgoing.in_time(lambda: outgoing.texts() == [LINE + "\n\n\n" + LINE])
    await turn.finish(LINE + "\n\n\n" + LINE + "\n")
    await sender

    assert {call.outcome for call in outgoing.double.workspace.calls} == {"ok"}


async def test_a_message_of_an_earlier_attempt_that_has_only_white_space_left_is_withdrawn(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE * 30)
    await outgoing.in_time(lambda: len(outgoing.posted) > 1)
    await outgoing.crash()
    [(starts,)] = await outgoing.rows("select starts from slack_parts where number = 2")
    await turn.finish("x" * int(str(starts)) + "\n\n", status=RunStatus.SUCCEEDED)

    await outgoing.deliver()

    assert [text.strip() for text in outgoing.texts()] == ["x" * int(str(starts)), "_(withdrawn)_"]
