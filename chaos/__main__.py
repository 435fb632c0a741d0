"""`python -m chaos [SCENARIO …]`: run the scenarios, all by default, and print a table of each."""

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog

from chaos.report import Report, render
from chaos.scenario_fail_over import run_fail_over
from chaos.scenario_idempotency import run_idempotency
from chaos.scenario_load import run_load
from chaos.scenario_pause import run_pause
from chaos.scenario_points import run_points
from chaos.scenario_postgres import run_postgres
from chaos.scenario_random import run_random
from chaos.scenario_senders import run_senders
from chaos.scenario_streams import run_streams


@dataclass(frozen=True, slots=True)
class Amount:
    """How much of everything: `factor` multiplies kills, rounds and keys; `seed` is where chance begins."""

    factor: float
    seed: int

    def times(self, usual: int) -> int:
        """Return how often, at least once."""
        return max(1, round(usual * self.factor))


Scenario = Callable[[Amount], Awaitable[tuple[Report, ...]]]
SCENARIOS: Mapping[str, Scenario] = {
    "idempotency": lambda amount: run_idempotency(clients=50, keys=amount.times(20)),
    "senders": lambda amount: run_senders(senders=64, rounds=amount.times(5)),
    "streams": lambda amount: run_streams(cuts=amount.times(500), seed=amount.seed),
    "pause": lambda amount: run_pause(pauses=amount.times(30), writers=16, seed=amount.seed),
    "random": lambda amount: run_random(kills=amount.times(60), writers=16, seed=amount.seed),
    "load": lambda amount: run_load(kills=amount.times(60), writers=amount.times(120), seed=amount.seed),
    "postgres": lambda amount: run_postgres(kills=amount.times(30), writers=16, seed=amount.seed),
    "fail-over": lambda amount: run_fail_over(times=amount.times(3), writers=16, seed=amount.seed),
    "points": lambda amount: run_points(runs=amount.times(3)),
}


def main() -> None:
    """Run the scenarios; ends with 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Kill everything and see what is lost.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--factor", type=float, default=1.0, help="how much of everything; default 1")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000, help="repeats the same chances")
    options = parser.parse_args()
    if unknown := [name for name in options.scenarios if name not in SCENARIOS]:
        parser.error(f"no scenario {unknown[0]!r}: choose of {', '.join(SCENARIOS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    amount = Amount(options.factor, options.seed)
    sys.exit(asyncio.run(_run(options.scenarios or list(SCENARIOS), amount)))


async def _run(names: list[str], amount: Amount) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # so that nothing is left running
    print(f"seed {amount.seed}, factor {amount.factor:g}", flush=True)
    broken = 0
    for name in names:
        began = time.monotonic()
        reports = await SCENARIOS[name](amount)
        print(render(reports), f"   ({time.monotonic() - began:.0f} s)", sep="\n", flush=True)
        broken += sum(len(report.findings) for report in reports)
    print(f"{broken} broken promises" if broken else "no promise was broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    main()
