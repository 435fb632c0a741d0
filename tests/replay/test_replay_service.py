"""The sample in the project, replayed through the real service against the strict double."""

from pathlib import Path

import pytest

from benchmarks.replay import main


@pytest.mark.slow
def test_real_conversations_of_three_windows_lose_nothing_and_never_overflow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets = "tau-bench,qmsum,ubuntu-irc,openhands-events"
    exit_code = main(["--quick", "--datasets", datasets, "--folder", str(tmp_path)])

    printed = capsys.readouterr().out
    assert exit_code == 0, printed
    assert "every message there byte for byte" in printed
