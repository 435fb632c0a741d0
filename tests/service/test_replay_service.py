"""The sample in the project, replayed through the real service against the strict double."""

import re
from pathlib import Path

import pytest

from benchmarks.replay import main

DATASETS = "ubuntu-irc,openhands-events"
"""A talk of many with short turns, whose summaries are ready ahead; and few turns of many tool calls, where room is
made inside a turn and the stages fire. The other data sets are of these two kinds: `make bench` replays all of them."""


@pytest.mark.proof
@pytest.mark.slow
def test_real_conversations_of_three_windows_lose_nothing_and_never_overflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code = main(["--quick", "--pause", "0.02", "--datasets", DATASETS, "--folder", str(tmp_path)])

    printed = capsys.readouterr().out
    assert exit_code == 0, printed
    assert "every message there byte for byte" in printed
    compactions = [int(count) for count in re.findall(r", (\d+) compactions,", printed)]
    assert len(compactions) == 2
    assert min(compactions) >= 3, printed
