"""The properties bite: whatever rung or guard is taken out, a judge of the played sessions notices."""

from pathlib import Path

import pytest

from context.mutants import MUTANTS, Mutant, broken_by

pytestmark = pytest.mark.slow  # each is played in a process of its own


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_a_mutant_breaks_a_promise(mutant: Mutant, tmp_path: Path) -> None:
    assert broken_by(mutant, tmp_path).startswith("FAULT")


def test_the_engine_itself_breaks_none(tmp_path: Path) -> None:
    unchanged = Mutant("unchanged", "ladder/rungs.py", "SQUEEZES = 3\n", "SQUEEZES = 3\n")

    assert broken_by(unchanged, tmp_path, sessions=100) == ""
