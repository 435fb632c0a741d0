"""Two servers and two workers on one database are one service: streams, lines and keys do not care which is asked."""

import random
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from chaos.grounds import Grounds, lay_out
from chaos.scenario_idempotency import play_idempotency
from chaos.scenario_senders import play_senders
from chaos.scenario_streams import play_streams

CUTS = 40

pytestmark = pytest.mark.slow


@pytest.fixture
async def grounds(folder: Path, database_url: str) -> AsyncGenerator[Grounds]:
    async with lay_out(folder, database_url=database_url, data_dir=folder / "data") as made:
        yield made


async def test_a_stream_that_is_cut_goes_on_at_another_server_without_gap_or_repetition(grounds: Grounds) -> None:
    report = await play_streams(grounds, cuts=CUTS, dice=random.Random(4))

    assert report.findings == ()
    assert report.counts["cuts"] >= CUTS


async def test_sixty_four_senders_on_one_session_are_answered_in_the_order_of_acceptance(
    grounds: Grounds,
) -> None:
    report = await play_senders(grounds, senders=64, rounds=1)

    assert report.findings == ()
    assert report.counts["messages"] == 64


async def test_one_key_from_fifty_clients_at_once_is_one_run_and_fifty_equal_answers(
    grounds: Grounds,
) -> None:
    report = await play_idempotency(grounds, clients=50, keys=1)

    assert report.findings == ()
    assert (report.counts["runs"], report.counts["model calls"]) == (1, 1)
