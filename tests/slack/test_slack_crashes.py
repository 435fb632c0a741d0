"""A sender may die anywhere, and Slack may lose any answer of its own: each answer stands in its thread once."""

import asyncio
from dataclasses import dataclass, replace

import pytest

from fakes.raw_sql import slow_request
from fakes.slack_delivery import DeliveryStage, dispatcher_of
from fakes.slack_double import TIERS, Failure, say
from fakes.waiting import until_found
from throughline.db.database import Database, DatabaseConfig
from throughline.db.runs.followed_runs import RunFollower
from throughline.domain.basic_types import RunId
from throughline.domain.errors import LeaseLost
from throughline.domain.events import AnswerReset
from throughline.domain.run import Run
from throughline.slack.answers.answer_sender import STATUS_SECONDS, DisplayPace
from throughline.slack.front_end import slack_config
from throughline.slack.settings import SlackSettings
from throughline.slack.store.database import slack_database
from throughline.slack.store.outbox import DeliveryClaim
from throughline.slack.web_api import SlackUnsure, Thread

LINE = "The quick brown fox jumps over the lazy dog. " * 10 + "\n"
LOST = Failure(drops=True, acts=True)
CUT = Failure(drops=True)
BROKEN = Failure(status=503)
DONE_AND_BROKEN = Failure(status=500, acts=True)
TROUBLES = [LOST, CUT, BROKEN, DONE_AND_BROKEN]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_an_answer_posted_in_trouble_stands_there_once(outgoing: DeliveryStage, trouble: Failure) -> None:
    outgoing.double.rules.fail("chat.postMessage", trouble)
    turn = await outgoing.ask()
    await turn.finish("Only once.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Only once."]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("method", ["chat.startStream", "chat.appendStream", "chat.stopStream"])
async def test_a_stream_in_trouble_ends_whole_and_once(outgoing: DeliveryStage, method: str, trouble: Failure) -> None:
    outgoing.double.rules.fail(method, trouble)
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: LINE in outgoing.texts())
    await turn.say(LINE)
    await outgoing.in_time(lambda: LINE * 2 in outgoing.texts())
    await turn.finish(LINE * 2 + "End.")
    await sender

    assert outgoing.texts() == [LINE * 2 + "End."]
    assert not outgoing.posted[0].is_streaming


async def test_a_sender_that_dies_before_anything_is_posted_is_followed_by_one_that_posts(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await outgoing.until(lambda: bool(outgoing.double.workspace.statuses))
    await outgoing.crash()
    await turn.finish("Here.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Here."]


async def test_a_sender_that_dies_between_posting_and_noting_is_followed_by_one_that_looks(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await turn.finish("Posted, not noted.")
    delivery = await outgoing.claim()
    await outgoing.slack.outbox.begin_part(delivery.lease, 1, starts=0)
    await outgoing.services.calls.start_stream(
        Thread("D0ANNA001", delivery.thread_ts, "U0ANNA001", "T0DOUBLE1"), "Posted, "
    )
    await outgoing.crash()

    await outgoing.deliver()

    assert outgoing.texts() == ["Posted, not noted."]
    assert "conversations.replies" in outgoing.methods()


async def test_a_sender_that_dies_before_posting_is_followed_by_one_that_posts(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await turn.finish("Noted, not posted.")
    delivery = await outgoing.claim()
    await outgoing.slack.outbox.begin_part(delivery.lease, 1, starts=0)
    await outgoing.crash()

    await outgoing.deliver()

    assert outgoing.texts() == ["Noted, not posted."]


async def test_a_sender_that_dies_in_mid_stream_is_followed_by_one_that_ends_the_message(
    outgoing: DeliveryStage,
) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await outgoing.crash()
    sender = await outgoing.start()
    await turn.say(LINE)
    await turn.finish(LINE * 2)
    await sender

    assert outgoing.texts() == [LINE * 2]
    assert not outgoing.posted[0].is_streaming


async def test_a_sender_that_dies_in_a_long_answer_is_followed_by_one_that_adds_the_rest(
    outgoing: DeliveryStage,
) -> None:
    answer = "".join(f"{number} {LINE}" for number in range(60))
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(answer[:15_000])
    await outgoing.until(lambda: len(outgoing.posted) == 2)
    await outgoing.crash()
    await turn.say(answer[15_000:])
    await turn.finish(answer)

    await outgoing.deliver()

    assert "".join(outgoing.texts()) == answer
    assert len({message.ts for message in outgoing.posted}) == len(outgoing.posted)


async def test_a_sender_that_dies_after_the_last_call_leaves_nothing_to_double(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await turn.finish("Said and done.")
    delivery = await outgoing.claim()
    await (await outgoing.start(delivery))
    await outgoing.free_again(delivery)

    await outgoing.deliver()

    assert outgoing.texts() == ["Said and done."]


async def test_a_sender_that_was_passed_over_writes_nothing_any_more(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    late = await outgoing.claim()
    await outgoing.crash()
    await turn.finish("Mine.")
    await outgoing.deliver()

    with pytest.raises(LeaseLost):
        await (await outgoing.start(late))

    assert outgoing.texts() == ["Mine."]


async def test_an_answer_that_somebody_deleted_is_not_posted_again(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    await outgoing.start()
    await turn.say(LINE)
    await outgoing.until_noted()
    await outgoing.crash()
    outgoing.double.workspace.posted.clear()
    await turn.finish(LINE)

    await outgoing.deliver()

    assert outgoing.texts() == []


async def test_an_edit_is_tried_again_and_given_up_for_now_where_slack_stays_in_trouble(
    outgoing: DeliveryStage,
) -> None:
    outgoing.double.rules.fail("chat.startStream", Failure(error="unknown_method"))
    outgoing.double.rules.fail("chat.update", *[BROKEN] * 3)
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE)
    await outgoing.until(lambda: bool(outgoing.posted))
    await turn.finish(LINE + "End.")
    with pytest.raises(SlackUnsure):
        await sender
    await outgoing.crash()

    await outgoing.deliver()

    assert outgoing.texts() == [LINE + "End."]


async def test_messages_that_a_second_attempt_does_not_need_are_withdrawn(outgoing: DeliveryStage) -> None:
    turn = await outgoing.ask()
    sender = await outgoing.start()
    await turn.say(LINE * 30)
    await outgoing.until(lambda: len(outgoing.posted) == 2)
    await turn.emit(AnswerReset(2))
    await turn.say("Shorter this time.")
    await turn.finish("Shorter this time.")
    await sender

    assert outgoing.texts() == ["Shorter this time.", "_(withdrawn)_"]


async def test_where_slack_does_not_let_us_look_an_answer_is_rather_doubled_than_lost(
    outgoing: DeliveryStage,
) -> None:
    outgoing.double.rules.fail("chat.postMessage", LOST)
    outgoing.double.rules.fail("conversations.replies", Failure(error="missing_scope"))
    turn = await outgoing.ask()
    await turn.finish("Twice, then.")

    await outgoing.deliver()

    assert outgoing.texts() == ["Twice, then."] * 2


OPEN = 60


def test_as_many_answers_are_delivered_at_once_as_turns_and_with_leases_as_long() -> None:
    config = slack_config(SlackSettings(), concurrency=321, lease_seconds=3)

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
        renewals = await slack_database(full, "assistant").outbox.renew([lease], 60)
    await full.close()

    assert renewals[lease].is_renewed


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


RENEWALS = 3


@dataclass
class CountedReads:
    """How often a run's row was read."""

    times: int = 0


class CountingRuns(RunFollower):
    """Counts how often a run's row is read."""

    def __init__(self, outgoing: DeliveryStage, reads: CountedReads) -> None:
        """Read the stage's database."""
        database = outgoing.database
        super().__init__(database._transactions, database.notifier, database.events)  # noqa: SLF001  # no other way to the same tables
        self._reads = reads

    async def find(self, run_id: RunId) -> Run | None:
        self._reads.times += 1
        return await super().find(run_id)


async def test_a_silent_turn_is_not_read_again_and_again(outgoing: DeliveryStage) -> None:
    reads = CountedReads()
    turn = await outgoing.ask()
    outgoing.database.followed_runs = CountingRuns(outgoing, reads)
    sender = await outgoing.start()
    statuses = outgoing.double.workspace.statuses
    for told in range(1, RENEWALS + 2):  # the sender looks around at least once for each
        await outgoing.until(lambda told=told: len(statuses) == told)  # type: ignore[misc]  # its default is the number
        outgoing.clock.advance(STATUS_SECONDS + 1)
    before = reads.times
    await turn.finish("Here.")
    await sender

    assert before <= 2, "at the beginning only"
    assert outgoing.texts() == ["Here."]


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
