"""Long histories that were never summarised: in few calls, merged on the way, and in rounds where nobody waits."""

import time
from collections.abc import Sequence

import pytest

from fakes.compactions import SUMMARY, positions_read, prepare_one
from fakes.imports import import_into
from fakes.scripted_model import Say, Step
from fakes.side_jobs import do_summary_job
from fakes.stage import Stage, open_stage, with_context
from throughline.context.policy import SummaryPolicy
from throughline.db.database import Database
from throughline.domain.prompt import ModelRequest
from throughline.domain.summary import SummaryState
from throughline.turn.summary import prepare
from throughline.turn.summary.prepare import ROUND_SECONDS
from throughline.turn.worker.jobs import NotDone

MESSAGES = 2000


async def open_long(database: Database, *, messages: int = MESSAGES, **summary: object) -> Stage:
    policy = SummaryPolicy(**summary)  # type: ignore[arg-type]  # fields by name
    agent = with_context(window=8192, min_recent_messages=2, max_messages_before_summary=10, summary=policy)
    stage = await open_stage(database, agent=agent)
    stage.model.by_request = lambda _: Say(SUMMARY)
    await import_into(stage, messages)
    return stage


def read_by(requests: Sequence[ModelRequest]) -> list[int]:
    """How many messages each call was shown; merges are shown none."""
    return [len(positions_read([request])) for request in requests]


async def test_a_segment_takes_what_the_summariser_can_read_however_many_messages_that_are(database: Database) -> None:
    stage = await open_long(database)

    assert await prepare_one(stage)

    shown = [number for number in read_by(stage.model.requests) if number]
    assert len(shown) <= 8
    assert min(shown[:-2]) > 280  # the last two meet where the turn's own rows begin
    assert sum(shown) == MESSAGES - 2


async def test_no_segment_is_longer_than_the_policy_says_and_none_but_the_last_shorter(database: Database) -> None:
    stage = await open_long(database, messages=900, chunk_messages=60)

    assert await prepare_one(stage)

    shown = [number for number in read_by(stage.model.requests) if number]
    assert max(shown) <= 60
    assert len(shown) <= 900 // 50


async def test_a_history_that_nobody_waits_for_is_merged_as_it_is_read(database: Database) -> None:
    stage = await open_long(database, messages=900, chunk_messages=60, max_tokens=900)
    stage.model.by_request = lambda _: Say("They counted on. " * 13)

    assert await prepare_one(stage)

    kinds = ["read" if number else "merge" for number in read_by(stage.model.requests)]
    assert kinds.index("merge") < 15


async def test_a_job_has_at_least_as_long_as_a_turn_would_have(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "PREPARE_SECONDS", 0.05)
    stage = await open_long(database, messages=20, timeout_seconds=60)

    def slowly(_request: ModelRequest) -> Step:
        time.sleep(0.2)
        return Say(SUMMARY)

    stage.model.by_request = slowly

    assert await prepare_one(stage)


async def test_a_round_that_took_long_keeps_what_it_has_and_leaves_the_rest_to_the_next(database: Database) -> None:
    stage = await open_long(database)

    def slowly(_request: ModelRequest) -> Step:
        stage.clock.advance(ROUND_SECONDS)
        return Say(SUMMARY)

    stage.model.by_request = slowly
    reached = []
    for _ in range(3):
        assert await do_summary_job(stage) == NotDone()
        prepared = await stage.database.summaries.load_parts(stage.session.id, SummaryState.PREPARED)
        assert prepared is not None
        reached.append(prepared.version.through_position)

    assert len(stage.model.requests) == 3
    assert reached == sorted(set(reached))
    assert sorted(positions_read(stage.model.requests)) == list(range(1, reached[-1] + 1))
