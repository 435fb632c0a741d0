"""Where Slack takes less at a time than it says, an answer is cut smaller."""

import pytest

from fakes.slack_delivery import DeliveryStage
from throughline.slack.web_api import SlackRefused

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"


async def test_an_answer_too_long_to_post_is_posted_in_smaller_pieces(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.most_chars = 3_000
    answer = "".join(f"{number} {LINE}" for number in range(20))
    turn = await outgoing.ask()
    await turn.finish(answer)

    await outgoing.deliver()

    assert "".join(outgoing.texts()) == answer
    assert all(len(text) <= 2_500 for text in outgoing.texts())


async def test_a_message_that_grew_too_long_is_cut_and_continued(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.most_chars = 3_000
    answer = "".join(f"{number} {LINE}" for number in range(20))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    for start in range(0, len(answer), 500):
        await turn.say(answer[start : start + 500])
    await turn.finish(answer)
    await sender

    assert "".join(outgoing.texts()) == answer


async def test_where_no_piece_is_short_enough_the_delivery_is_refused(outgoing: DeliveryStage) -> None:
    outgoing.double.workspace.most_chars = 10
    turn = await outgoing.ask()
    await turn.finish(LINE)

    with pytest.raises(SlackRefused, match="msg_too_long"):
        await outgoing.deliver()
