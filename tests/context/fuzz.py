"""Plays many random sessions and judges every step: `make fuzz`. Prints what was reached, and a seed for each fault.

python -m context.fuzz --runs 200000 --seed 0
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from context.play import Play, Step
from context.session_judge import Judge
from throughline.context.compaction.last_stages import HARD_STAGES, SOFT_STAGES
from throughline.context.fit_prompt import MessageVariant, ShownMessage
from throughline.domain.errors import PromptCannotFit
from throughline.domain.message import Role

MOST_PRINTED = 20
LEAST_SHARE = 0.01
"""What fewer sessions reach than this has not been tried."""

ONCE_IN_MANY = "pins_left_out"
"""The last stage of all: in one session of tens of thousands. `test_properties` plays one that reaches it."""

FIRED = (
    *(name for name, _ in (*SOFT_STAGES, *HARD_STAGES) if name != ONCE_IN_MANY),
    "pruned",
    "pruned_aggressively",
    "history_truncated",
    "unimportant_left_out",
    "prepared_adopted",
    "summarised",
)
SEEN: Mapping[str, Callable[[Step], bool]] = {
    "compaction failed": lambda step: step.outcome == "failed",
    "cut inside a turn": lambda step: bool(step.given) and not _starts_turn(step, step.given[-1] + 1),
    "gap": lambda step: step.raw.has_gap,
    "repair": lambda step: any(item.form is MessageVariant.LEFT_OUT for item in step.shown) or _is_made_up(step),
    "pin behind the cursor": lambda step: any(
        item.pinned and not _is_after(step, item.position) for item in _shown(step)
    ),
    "user behind the cursor": lambda step: step.fitted.view.context_input.current_behind_cursor is not None,
    "refused as too long": lambda step: step.raw.cap_tokens is not None,
    "summary restored": lambda step: step.raw.view_state.restored_at_position > 0,
    "model changed": lambda step: step.upset == "the model was changed",
}
REACHABLE = (*FIRED, *SEEN)


@dataclass(slots=True)
class Tally:
    """What some runs came to: how many reached what, how many steps there were, and the faults."""

    runs: int = 0
    steps: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)


def play_and_judge(seeds: Iterable[int], *, is_over_at_fault: bool = False) -> Tally:
    """Play the sessions of these seeds; a play ends at its first fault, and with `is_over_at_fault` all do."""
    tally = Tally()
    for seed in seeds:
        if tally.faults and is_over_at_fault:
            break
        reached: set[str] = set()
        tally.runs += 1
        try:
            tally.faults += _faults(seed, reached, tally)
        except PromptCannotFit as error:
            tally.faults.append((seed, "always_fits", str(error)))
        except Exception as error:  # noqa: BLE001  # whatever the engine raises is a fault, and the rest is played
            tally.faults.append((seed, "never_raises", repr(error)))
        tally.reached.update(reached)
    return tally


def _faults(seed: int, reached: set[str], tally: Tally) -> list[tuple[int, str, str]]:
    judge = Judge()
    for step in Play(seed):
        tally.steps += 1
        found = judge.violations(step)
        if found:
            return [(seed, promise, said) for promise, said in found]
        reached.update(step.fired)
        reached.update(name for name, is_seen in SEEN.items() if name not in reached and is_seen(step))
    return []


def _shown(step: Step) -> tuple[ShownMessage, ...]:
    return step.shown


def _is_after(step: Step, position: int) -> bool:
    return position > step.fitted.view.context_input.summary_through_position


def _starts_turn(step: Step, position: int) -> bool:
    return position > len(step.rows) or step.rows[position - 1].role is Role.USER


def _is_made_up(step: Step) -> bool:
    return any(message.position is None and message.role is Role.TOOL for message in step.fitted.prompt.messages)


def report(total: Tally) -> None:
    """Print the table of what was reached, and the faults."""
    for name in REACHABLE:
        count = total.reached[name]
        rare = "" if count >= LEAST_SHARE * total.runs else "  too rare"
        _say(f"  {name:<26}{count:>9,}{100 * count / max(total.runs, 1):>7.1f} %{rare}")
    for seed, promise, said in total.faults[:MOST_PRINTED]:
        _say(f"FAULT seed {seed}: {promise}: {said[:300]}")
    _say(f"{len(total.faults)} violations")


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
