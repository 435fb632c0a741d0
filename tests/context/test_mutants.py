"""The properties bite: whatever stage or guard is taken out, a judge of the played sessions notices."""

from pathlib import Path

import pytest

from context.mutants import MUTANTS, Mutant, broken_by, mutated

ALWAYS_PLAYED = {
    "no summary_shortened",  # a stage
    "no repair",
    "pins may be trimmed",
    "the new summary counts nothing",
    "a restore is undone",
}
"""One of each kind, and all of them show at once; the others are played by `make test-slow`."""


@pytest.mark.slow  # each is played in a process of its own
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.name in ALWAYS_PLAYED else pytest.mark.proof)
        for mutant in MUTANTS
    ],
)
def test_a_mutant_breaks_a_promise(mutant: Mutant, tmp_path: Path) -> None:
    assert broken_by(mutant, tmp_path).startswith("FAULT")


@pytest.mark.proof
@pytest.mark.slow
def test_the_engine_itself_breaks_none(tmp_path: Path) -> None:
    unchanged = Mutant("unchanged", "compaction/last_stages.py", "SQUEEZES = 3\n", "SQUEEZES = 3\n")

    assert broken_by(unchanged, tmp_path, sessions=100) == ""


def test_always_played_names_are_known_mutants() -> None:
    """A name that is none would leave its mutant to `make test-slow`, and nothing would tell."""
    assert {mutant.name for mutant in MUTANTS} >= ALWAYS_PLAYED


def test_each_mutant_follows_the_code() -> None:
    """Those that are not played do not lose what they replace."""
    assert all(mutated(mutant) for mutant in MUTANTS)
