"""An answer on its way to Slack: when its session is erased, when it is redacted, when it gets shorter."""

from contextlib import suppress

from fakes.slack_delivery import DeliveryStage, PlayedTurn
from throughline.db.sessions.redaction import Redaction
from throughline.domain.errors import LeaseLost

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
LONG = "SECRET " + LINE * 30


async def crash_in_the_second_message(outgoing: DeliveryStage) -> PlayedTurn:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LONG)
    await outgoing.in_time(lambda: len(outgoing.posted) > 1)
    await outgoing.crash()
    return turn


async def test_an_answer_whose_session_is_erased_in_mid_stream_is_no_longer_open_in_slack(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    run = turn.claimed.run

    await outgoing.database.sessions.delete(run.owner_id, run.session_id)
    with suppress(LeaseLost):
        await sender

    assert not outgoing.posted[0].is_streaming


async def test_a_redacted_answer_is_taken_out_of_slack_by_the_sender_after_a_dead_one(
    outgoing: DeliveryStage,
) -> None:
    turn = await crash_in_the_second_message(outgoing)
    run = await turn.finish(LONG)
    assert run.message_id is not None
    await outgoing.database.messages.redact(Redaction(run.owner_id, run.session_id, run.message_id))

    await outgoing.deliver()

    assert not any("SECRET" in shown for shown in outgoing.texts())


async def test_a_further_attempt_that_says_less_than_stood_in_the_first_message_is_shown(
    outgoing: DeliveryStage,
) -> None:
    turn = await crash_in_the_second_message(outgoing)
    await turn.finish("Short after all.")

    await outgoing.deliver()

    assert outgoing.texts()[0] == "Short after all."
