"""What a thread shows while its turn says nothing: all that was said before, and what the turn is at."""

import pytest

from fakes.slack_delivery import DeliveryStage
from fakes.slack_double import Failure, say
from fakes.waiting import until
from throughline.slack.answer_sender import STATUS_SECONDS

SAID = "Let me check the `orders` table."
USING = "is using search_orders…"
SLACK_DROPS_SECONDS = 120


def statuses(outgoing: DeliveryStage) -> list[str]:
    return [status for *_, status in outgoing.double.workspace.statuses]


@pytest.mark.parametrize("said", [SAID, "- **One**\n- [two](https://x.io)", "| a | b |\n|---|---|\n| 1 | 2 |"])
async def test_a_step_is_shown_whole_while_its_tool_is_at_work(outgoing: DeliveryStage, said: str) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(statuses(outgoing)))
    call = await turn.call_tool("search_orders", saying=said)
    outgoing.clock.advance(2)
    await outgoing.until(lambda: bool(outgoing.posted))
    (early,) = outgoing.texts()
    await turn.answer_tool(call)
    await turn.finish("There are **two**.")
    await sender

    assert outgoing.texts() == [f"{early}\n\nThere are **two**."]
    assert len(outgoing.double.workspace.called("chat.update")) == 0, "what was shown is the beginning of the answer"


async def test_a_status_stands_beside_what_was_said_for_as_long_as_the_tool_works(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(statuses(outgoing)))
    call = await turn.call_tool("search_orders", saying=SAID)
    outgoing.clock.advance(2)
    await outgoing.until(lambda: bool(outgoing.posted))
    for told in (1, 2, 3):
        await outgoing.until(lambda told=told: statuses(outgoing).count(USING) >= told)  # type: ignore[misc]  # its default is the number
        outgoing.clock.advance(STATUS_SECONDS + 1)
    await turn.answer_tool(call)
    await until(lambda: statuses(outgoing)[-1] == "is thinking…")
    await turn.finish("Two.")
    await sender

    assert STATUS_SECONDS < SLACK_DROPS_SECONDS
    assert statuses(outgoing)[-1] == "", "nothing says that it goes on when it is over"


async def test_a_status_is_gone_once_the_answer_goes_on(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await outgoing.until(lambda: bool(statuses(outgoing)))
    call = await turn.call_tool("search_orders", saying=SAID)
    outgoing.clock.advance(2)
    await outgoing.until(lambda: bool(outgoing.posted) and statuses(outgoing)[-1] == USING)
    await turn.answer_tool(call)
    await turn.say("There are two. " * 40)
    await outgoing.until(lambda: statuses(outgoing)[-1] == "")
    await turn.finish("There are two. " * 40)
    await sender

    assert outgoing.texts() == [f"{SAID}\n\n{'There are two. ' * 40}"]


async def test_what_an_edit_had_no_time_for_is_shown_though_nothing_more_is_said(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say("Let me see. " * 30)
    await outgoing.until(lambda: bool(outgoing.posted))
    whole = "Let me see. " * 30 + "I ask `orders`."
    await turn.call_tool("search_orders", saying=whole)
    await outgoing.in_time(lambda: outgoing.texts() == [whole])
    await turn.finish("")
    await sender

    assert outgoing.texts() == [whole]


async def test_a_question_that_waits_behind_another_of_its_thread_has_its_status_next(outgoing: DeliveryStage) -> None:
    first = say("one")
    turn = await outgoing.ask(said=first)
    await outgoing.take(say("two", thread_ts=first.ts))
    sender = await outgoing.start()
    await outgoing.until(lambda: len(statuses(outgoing)) == 1)
    await turn.finish("First.")
    await sender
    await outgoing.start()
    await outgoing.until(lambda: len(statuses(outgoing)) == 2)

    assert outgoing.double.workspace.statuses == [("D0ANNA001", first.ts, "is thinking…")] * 2
