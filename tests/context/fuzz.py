"""Plays many random sessions and judges every step: `make fuzz`. Prints a seed for each fault.

python -m context.fuzz --runs 200000 --seed 0
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from context.play import Play
from context.session_judge import Judge
from throughline.domain.errors import PromptCannotFit

MOST_PRINTED = 20


@dataclass(slots=True)
class Tally:
    """What some runs came to: how many sessions and steps there were, and the faults."""

    runs: int = 0
    steps: int = 0
    faults: list[tuple[int, str, str]] = field(default_factory=list)


def play_and_judge(seeds: Iterable[int], *, is_over_at_fault: bool = False) -> Tally:
    """Play the sessions of these seeds; a play ends at its first fault, and with `is_over_at_fault` all do."""
    tally = Tally()
    for seed in seeds:
        if tally.faults and is_over_at_fault:
            break
        tally.runs += 1
        try:
            tally.faults += _faults(seed, tally)
        except PromptCannotFit as error:
            tally.faults.append((seed, "always_fits", str(error)))
        except Exception as error:  # noqa: BLE001  # whatever the engine raises is a fault, and the rest is played
            tally.faults.append((seed, "never_raises", repr(error)))
    return tally


def _faults(seed: int, tally: Tally) -> list[tuple[int, str, str]]:
    judge = Judge()
    for step in Play(seed):
        tally.steps += 1
        found = judge.violations(step)
        if found:
            return [(seed, promise, said) for promise, said in found]
    return []


def report(total: Tally) -> None:
    """Print the faults."""
    for seed, promise, said in total.faults[:MOST_PRINTED]:
        _say(f"FAULT seed {seed}: {promise}: {said[:300]}")
    _say(f"{total.runs:,} sessions, {total.steps:,} prompts, {len(total.faults)} violations")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Return 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0, help="the first session's; the others follow")
    parser.add_argument("--stop", action="store_true", help="stop at the first fault")
    asked = parser.parse_args()
    total = play_and_judge(range(asked.seed, asked.seed + asked.runs), is_over_at_fault=asked.stop)
    report(total)
    return 1 if total.faults else 0


if __name__ == "__main__":
    sys.exit(main())
