"""Many answers that grow at the same time, under the limits that Slack names for its methods."""

import asyncio

from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import TIERS, say
from fakes.waiting import until_found

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
MANY = 30
ROUNDS = 20
DELIVERED = "select 1 from slack_deliveries where status = 'delivered' having count(*) = $1"


async def test_answers_that_grow_together_arrive_once_within_slacks_limits(outgoing: DeliveryStage) -> None:
    outgoing.double.rules.limits |= TIERS
    turns = [await outgoing.ask(said=say(f"question {number}")) for number in range(MANY)]
    async with dispatcher_of(outgoing).running():
        for _ in range(ROUNDS):
            await asyncio.gather(*(turn.say(LINE) for turn in turns))
            outgoing.clock.advance(1)
        await asyncio.gather(*(turn.finish(LINE * ROUNDS) for turn in turns))
        await until_found(lambda: outgoing.rows(DELIVERED, MANY))

    assert outgoing.texts() == [LINE * ROUNDS] * MANY
    assert not any(message.is_streaming for message in outgoing.posted)
    assert {call.outcome for call in outgoing.double.workspace.calls} <= {"ok", "ratelimited"}
    chats = [call for call in outgoing.double.workspace.calls if call.method.startswith("chat.")]
    assert len(chats) <= 10 * MANY, f"{len(chats)} calls"
