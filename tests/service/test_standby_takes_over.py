"""The primary PostgreSQL dies under load and its standby takes over, with the real service, writers and readers."""

import pytest

from chaos.scenario_fail_over import FailOver, play_fail_over

pytestmark = [pytest.mark.slow, pytest.mark.proof, pytest.mark.timeout(900)]

WRITERS = 16


@pytest.mark.parametrize("processes", [1, 2])
async def test_nothing_acknowledged_is_lost_when_the_standby_takes_over(processes: int) -> None:
    report = await play_fail_over(FailOver(WRITERS, seed=processes, processes=processes))

    assert report.findings == ()
    assert report.counts["messages"] > WRITERS
