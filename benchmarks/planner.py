"""What planning and fitting cost before a model call, in pure Python time, beside LangChain's own trimming.

`python -m benchmarks.planner`. The messages are recorded ones, as often as needed, with their stored counts; `STATES`
says which, and how full the window is: nothing to do, with a prune to replay or without, tool outputs to prune, a cut
to find for a summary, or a conversation of twice the window, for which the last ladder is climbed. What is timed is
what the service does on its event loop before each call: `plan_context`, then `fit_view` of the plan's view, in
seconds of this thread's CPU. The baseline trims equal LangChain messages with its approximate counter, to half of their
tokens except at rest. Exits with 1 if more than a millisecond is taken for each 1,000 messages at rest.
"""

import argparse
import cProfile
import functools
import gc
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from langchain_core.messages import BaseMessage, SystemMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately

from benchmarks.planner_input import conversation, langchain_messages
from throughline.context.context_input import ContextInput
from throughline.context.fit import fit_view
from throughline.context.plan import plan_context

SIZES = (100, 1_000, 10_000)
PRUNED = "at rest, pruned"
STATES = {
    "at rest": ("tau-bench", 0.5),
    PRUNED: ("tau-bench", 0.82),
    "pruning": ("tau-bench", 0.82),
    "compacting": ("qmsum", 0.82),
    "over the window": ("tau-bench", 2.0),
}
"""Whose messages, and the share of the window that they take as they are stored. PRUNED is the call after a prune."""

AT_REST = ("at rest", PRUNED)
AIM_MS = 1.0
"""For each 1,000 messages after the cursor."""

LEAST_JUDGED = 1000
"""With fewer messages, counting the system message is most of it."""

SECONDS_A_CELL = 2.0
FEWEST, MOST = 20, 300
SHOWN_LINES = 12


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one cell: the service's and the baseline's, each as (median, 99th percentile)."""

    messages: int
    state: str
    did: str
    ours: tuple[float, float]
    baseline: tuple[float, float]

    @property
    def is_slow(self) -> bool:
        """Whether the aim is missed; it is meant for every call's planning, not for the stages in between."""
        is_judged = self.state in AT_REST and self.messages >= LEAST_JUDGED
        return is_judged and self.ours[0] > AIM_MS * self.messages / 1000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    options = _parse(arguments)
    if options.profile:
        _profile(options.profile)
        return 0
    sizes = [int(size) for size in options.messages.split(",")]
    timings = [measure(size, state) for size in sizes for state in STATES]
    print(render(timings))
    slow = [timing for timing in timings if timing.is_slow]
    print("\n".join(f"{item.messages:,} messages {item.state} take {item.ours[0]:.2f} ms" for item in slow))
    return 1 if slow else 0


def measure(size: int, state: str) -> Timing:
    """Time one number of messages in one state."""
    inp = _given(size, state)
    plan = plan_context(inp)
    did = (*plan.fired, *(["cut"] if plan.decision.to_summarise else []), *fit_view(plan.view).notes)
    given: list[BaseMessage] = [SystemMessage(inp.system_prompt), *langchain_messages(inp)]
    whole = count_tokens_approximately(given)
    trim = functools.partial(
        trim_messages,
        given,
        max_tokens=2 * whole if state in AT_REST else whole // 2,
        token_counter=count_tokens_approximately,
        start_on="human",
        include_system=True,
    )
    return Timing(
        size, state, ", ".join(did) or "nothing", timed(lambda: fit_view(plan_context(inp).view)), timed(trim)
    )


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the median and the 99th percentile of the work's time in milliseconds.

    What lives already is left aside by the garbage collector, so that the benchmark's own data costs nothing.
    """
    work()
    gc.collect()
    gc.freeze()
    taken: list[float] = []
    until = time.perf_counter() + SECONDS_A_CELL
    while len(taken) < FEWEST or (len(taken) < MOST and time.perf_counter() < until):
        began = time.thread_time()
        work()
        taken.append(1000 * (time.thread_time() - began))
    return statistics.median(taken), statistics.quantiles(taken, n=100, method="inclusive")[98]


def render(timings: Sequence[Timing]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| messages | state | did | median ms | p99 ms | ms per 1,000 | LangChain median ms | p99 ms |",
        "|---------:|-------|-----|----------:|-------:|-------------:|--------------------:|-------:|",
    ]
    lines += [
        f"| {item.messages:,} | {item.state} | {item.did} | {item.ours[0]:.2f} | {item.ours[1]:.2f} | "
        f"{1000 * item.ours[0] / item.messages:.2f} | {item.baseline[0]:.2f} | {item.baseline[1]:.2f} |"
        for item in timings
    ]
    return "\n".join(lines)


def _given(size: int, state: str) -> ContextInput:
    inp = conversation(size, *STATES[state])
    return replace(inp, view_state=plan_context(inp).view_state) if state == PRUNED else inp


def _profile(state: str) -> None:
    """Print where the time goes with the most messages."""
    inp = _given(SIZES[-1], state)
    with cProfile.Profile() as profile:
        fit_view(plan_context(inp).view)
    pstats.Stats(profile).sort_stats("tottime").print_stats(SHOWN_LINES)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--messages", default=",".join(map(str, SIZES)), help="how many lie after the cursor")
    parser.add_argument("--profile", choices=STATES, help="show where the time goes instead")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
