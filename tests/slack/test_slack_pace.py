"""How often answers are shown while they grow, and that no end waits for a piece that may be left out."""

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure
from throughline.slack.answer_sender import DisplayPace

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"


async def test_the_end_of_an_answer_waits_for_no_piece_of_it(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    outgoing.double.rules.fail("chat.appendStream", Failure(status=429, retry_after=200))
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.double.workspace.called("chat.appendStream")))
    await turn.finish(LINE * 2 + "Done.")
    await sender

    assert outgoing.texts() == [LINE * 2 + "Done."]
    assert outgoing.clock.slept == []
    assert outgoing.double.workspace.called("chat.update") == []


async def test_a_piece_that_was_left_out_goes_with_the_next(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    outgoing.double.rules.fail("chat.appendStream", Failure(status=429, retry_after=5))
    await turn.say(LINE)
    await outgoing.in_time(lambda: outgoing.texts() == [LINE * 2])
    await turn.finish(LINE * 2)
    await sender

    assert outgoing.texts() == [LINE * 2]


def test_the_more_answers_grow_the_less_often_each_is_shown() -> None:
    assert [DisplayPace(answers).slowdown for answers in (0, 1, 5, 50)] == [1, 1, 3, 30]
