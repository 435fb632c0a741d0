"""A sender whose turn says nothing asks the database nothing."""

from dataclasses import dataclass

from fakes.slack_delivery import DeliveryStage
from throughline.db.runs.followed_runs import FollowedRuns
from throughline.domain.basic_types import RunId
from throughline.domain.run import Run
from throughline.slack.answer_sender import STATUS_SECONDS

RENEWALS = 3


@dataclass
class CountedReads:
    """How often a run's row was read."""

    times: int = 0


class CountingRuns(FollowedRuns):
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
