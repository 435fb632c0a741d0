"""Two servers and two workers on one database are one service: streams, lines and keys do not care which is asked."""

import random
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from chaos.grounds import Grounds, lay_out
from chaos.scenario_idempotency import play_idempotency
from chaos.scenario_senders import play_senders
from chaos.scenario_streams import play_streams

pytestmark = pytest.mark.slow


@pytest.fixture
async def grounds(folder: Path, database_url: str) -> AsyncGenerator[Grounds]:
    async with lay_out(folder, database_url=database_url, data_dir=folder / "data") as made:
        yield made


@pytest.mark.parametrize("cuts", [12, pytest.param(40, marks=pytest.mark.proof)])
async def test_a_stream_that_is_cut_goes_on_at_another_server_without_gap_or_repetition(
    grounds: Grounds, cuts: int
) -> None:
    report = await play_streams(grounds, cuts=cuts, dice=random.Random(4))

    assert report.findings == ()
    assert report.counts["cuts"] >= cuts


@pytest.mark.parametrize("senders", [20, pytest.param(64, marks=pytest.mark.proof)])
async def test_many_senders_on_one_session_are_answered_in_the_order_of_acceptance(
    grounds: Grounds, senders: int
) -> None:
    report = await play_senders(grounds, senders=senders, rounds=1)

    assert report.findings == ()
    assert report.counts["messages"] == senders


@pytest.mark.parametrize("clients", [16, pytest.param(50, marks=pytest.mark.proof)])
async def test_one_key_from_many_clients_at_once_is_one_run_and_as_many_equal_answers(
    grounds: Grounds, clients: int
) -> None:
    report = await play_idempotency(grounds, clients=clients, keys=1)

    assert report.findings == ()
    assert (report.counts["runs"], report.counts["model calls"]) == (1, 1)
