"""Answers whose turns take long keep nobody else waiting, up to the number of turns the process has open."""

from dataclasses import replace

from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import say
from fakes.slow_request import slow_request
from throughline.assembly.slack import slack_config
from throughline.db.database import Database, DatabaseConfig
from throughline.db.slack.outbox import DeliveryClaim
from throughline.settings import Settings

OPEN = 60


def test_as_many_answers_are_delivered_at_once_as_turns_and_with_leases_as_long() -> None:
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


async def test_a_whole_answer_does_not_wait_behind_as_many_open_ones_as_there_are_places(
    outgoing: DeliveryStage,
) -> None:
    for number in range(4):
        await outgoing.ask(said=say(f"slow {number}"))
    async with dispatcher_of(outgoing, concurrency=2).running():
        await outgoing.until(lambda: len(outgoing.double.workspace.called("assistant.threads.setStatus")) == 2)
        quick = await outgoing.ask(said=say("quick"))
        await quick.finish("Here.")
        await outgoing.until(lambda: bool(outgoing.posted))
        states = await outgoing.rows("select status from slack_deliveries order by seq")

    assert outgoing.texts() == ["Here."]
    assert [state for (state,) in states[:4]] == ["delivering", "delivering", "waiting", "waiting"]


async def test_whole_answers_are_taken_first_and_each_thread_keeps_its_order(outgoing: DeliveryStage) -> None:
    first = say("slow")
    await outgoing.ask(said=first)
    quick = await outgoing.ask(said=say("quick"))
    await quick.finish("Here.")

    [taken] = await outgoing.slack.outbox.claim(DeliveryClaim("one", limit=1, lease_seconds=60))
    ready = await outgoing.slack.outbox.claim(DeliveryClaim("one", limit=9, lease_seconds=60, only_ready=True))
    rest = await outgoing.slack.outbox.claim(DeliveryClaim("one", limit=9, lease_seconds=60))

    assert taken.run_id == quick.claimed.run.id
    assert ready == ()
    assert [delivery.thread_ts for delivery in rest] == [first.ts]


async def test_a_delivery_held_by_the_claimer_is_not_claimed_though_its_lease_ran_out(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("Here.")
    claim = DeliveryClaim("one", limit=9, lease_seconds=60)
    [taken] = await outgoing.slack.outbox.claim(claim)
    await outgoing.rows("update slack_deliveries set lease_until = now() - interval '1 second'")

    none = await outgoing.slack.outbox.claim(replace(claim, held=[taken.lease.id]))
    [taken_over] = await outgoing.slack.outbox.claim(claim)

    assert (none, taken_over.lease.id) == ((), taken.lease.id)


async def test_a_full_pool_costs_no_delivery_its_lease(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("Here.")
    lease = (await outgoing.claim()).lease
    full = await Database.open(DatabaseConfig(url=outgoing.url, pool_size=1, pool_timeout_seconds=0.01))

    async with slow_request(full, outgoing.url):
        renewals = await full.open_slack("assistant").outbox.renew([lease], 60)
    await full.close()

    assert renewals[lease].is_renewed
