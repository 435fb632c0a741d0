"""Answers whose turns take long keep nobody else waiting, up to the number of turns the process has open."""

from app.assembly.slack import slack_config
from app.settings import Settings
from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import say

OPEN = 60


def test_answers_are_delivered_as_turns_are_taken_as_many_at_once_and_with_leases_as_long() -> None:
    config = slack_config(Settings(worker_concurrency=321, lease_seconds=3))

    assert (config.concurrency, config.lease_seconds) == (321, 3)


async def test_sixty_open_answers_do_not_hold_up_the_next(outgoing: DeliveryStage) -> None:
    for number in range(OPEN):
        await outgoing.ask(said=say(f"slow {number}"))
    quick = await outgoing.ask(said=say("quick"))
    await quick.finish("Here.")

    async with dispatcher_of(outgoing).running():
        await outgoing.until(lambda: bool(outgoing.posted))

    assert outgoing.texts() == ["Here."]
