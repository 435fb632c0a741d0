"""A message text that its counter cannot take costs the turn it came with, and no later one."""

from dataclasses import dataclass, field, replace

import pytest

from fakes.scripted_model import Say
from fakes.stage import Stage, open_stage, with_context
from throughline.db.database import Database
from throughline.domain.message import text_of
from throughline.domain.run import Claimer, RunStatus
from throughline.llm.counters import CharsCounter
from throughline.turn.take_turn import take_turn


class Choking(Exception):
    """What a counter raises that cannot take a text."""


@dataclass
class ChokingCounter:
    """Counts like `chars`, but for one word."""

    name: str = "choking"
    asked: list[str] = field(default_factory=list)

    def count(self, text: str) -> int:
        """Raises Choking for a text with `poison` in it."""
        self.asked.append(text)
        if "poison" in text:
            raise Choking
        return CharsCounter().count(text)


@pytest.fixture
async def stage(database: Database) -> Stage:
    return await open_stage(database, agent=with_context(token_counter="choking"))


def count_with_choking(stage: Stage) -> ChokingCounter:
    counter = ChokingCounter()
    stage.dependencies = replace(
        stage.dependencies, make_counter=lambda name: CharsCounter() if name == "chars" else counter
    )
    return counter


async def test_a_text_that_a_counter_cannot_take_fails_its_own_turn_only(stage: Stage) -> None:
    counter = count_with_choking(stage)
    stage.model.script(Say("well"))

    first = await stage.turn("poison")
    counter.asked.clear()
    second = await stage.turn("and now?")

    assert [first.status, second.status] == [RunStatus.FAILED, RunStatus.SUCCEEDED]
    assert "poison" not in counter.asked
    assert text_of(stage.model.requests[-1].prompt.messages[0].content) == "poison"


async def test_a_message_that_no_process_survived_is_not_counted_by_later_turns(stage: Stage) -> None:
    counter = count_with_choking(stage)
    await stage.submit("poison")
    for _ in range(3):
        await stage.database.runs.claim_next(Claimer(worker="dying", lease_seconds=0))

    await take_turn(stage.turn_start(await stage.claim()))

    (kept,) = await stage.messages()
    assert (kept.counter, kept.token_count > 0) == ("choking", True)
    assert "poison" not in counter.asked
