"""Replays real conversations through the running service and prints what it did to their prompts.

`python -m benchmarks.replay` starts the strict provider doubles and the service by itself. Several recorded runs are
chained into one session until they fill at least three windows. Exits with 1 if a promise was broken: a prompt over the
window or invalid, a turn without an answer, a message changed, or one summarised that no summariser was shown.
"""

import argparse
import contextlib
import itertools
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.processes import DOUBLES, run_double, run_service
from benchmarks.replay_agents import write_agents, write_tools
from benchmarks.replay_cell import Cell, DoubleControl, Replayer
from benchmarks.replay_data import SAMPLE, Dataset, Turn, chain, merge_turns
from benchmarks.replay_readers import LOADERS, load_datasets
from benchmarks.replay_table import SHIPPED, STRATEGIES, Row, failures_of, progress, render_costs, render_table

WINDOWS = ("8k", "16k", "128k")
COUNTINGS = ("cl100k", "o200k", "bytes2")
WINDOWS_TO_FILL = 3
TALK_TURNS = 150
"""So many messages a talk is made into: its lines are joined, the more the larger the window."""

CHARACTERS_A_TOKEN = {"cl100k": 4.4, "o200k": 4.4, "bytes2": 2.0}
ALL_KEPT = (
    "No prompt over the window, no invalid prompt, every message there byte for byte, "
    "and every message behind a cursor was read by a summariser that answered."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to replay."""

    providers: tuple[str, ...]
    datasets: tuple[Dataset, ...]
    windows: tuple[str, ...]
    countings: tuple[str, ...]
    strategies: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the replay; return the exit code."""
    options = _parse(arguments)
    plan = _plan(options)
    with contextlib.ExitStack() as stack:
        folder = Path(options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-")))
        folder.mkdir(parents=True, exist_ok=True)
        running = {name: stack.enter_context(run_double(folder, name)) for name in plan.providers}
        doubles = {
            name: stack.enter_context(contextlib.closing(DoubleControl(double.url, name)))
            for name, double in running.items()
        }
        cells = _make_cells(plan, doubles)
        write_agents(folder, cells, {name: double.url for name, double in running.items()})
        write_tools(folder / "tools.json", cells, plan.datasets)
        environment = {"REPLAY_TOOLS": str(folder / "tools.json")}
        service = stack.enter_context(run_service(folder, environment))
        with contextlib.closing(Replayer(service.url, options.pause)) as replayer:
            rows, problems = _replay(cells, replayer, doubles)
    print(f"\n{render_table(rows)}\n\n{render_costs(rows)}\n")
    problems += [failure for row in rows for failure in failures_of(row)]
    print("\n".join(problems) or ALL_KEPT)
    return 1 if problems else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE, help=f"folder with {', '.join(LOADERS)}")
    parser.add_argument("--datasets", default="", help="for example tau-bench,qmsum (default: all that are found)")
    parser.add_argument("--windows", default=",".join(WINDOWS), help="for example 8k,16k")
    parser.add_argument("--countings", default=",".join(COUNTINGS))
    parser.add_argument("--providers", default="openai", help=f"of {','.join(DOUBLES)}")
    parser.add_argument("--strategies", default=SHIPPED, help=f"of {','.join(STRATEGIES)}, to be compared")
    parser.add_argument("--quick", action="store_true", help="window 8k counted in cl100k, nothing else")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between turns: people take longer")
    parser.add_argument("--folder", default="", help="where agents, logs and the database go; default: a temporary one")
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    found = load_datasets(options.data)
    if not found:
        sys.exit(f"{options.data} holds no data set: it may hold {', '.join(LOADERS)}")
    windows, countings = ("8k", "cl100k") if options.quick else (options.windows, options.countings)
    return Plan(
        providers=_names("double of", options.providers, DOUBLES),
        datasets=tuple(found[name] for name in _names("data set", options.datasets or ",".join(found), found)),
        windows=tuple(windows.split(",")),
        countings=tuple(countings.split(",")),
        strategies=_names("strategy", options.strategies, STRATEGIES),
    )


def _names(kind: str, text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the names in a text; exits in words where one of them is not known."""
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"There is no {kind} {', '.join(unknown)}: choose from {', '.join(known)}")
    return names


def _make_cells(plan: Plan, doubles: Mapping[str, DoubleControl]) -> list[Cell]:
    cells = []
    kinds = itertools.product(plan.providers, plan.windows, plan.countings, plan.datasets, plan.strategies)
    for provider, window, counting, dataset, strategy in kinds:
        special = "" if strategy == SHIPPED else f"-{strategy}"
        name = f"replay-{provider}-{window}-{counting}-{dataset.name}{special}"
        prompt = f"{dataset.system_prompt}\n\n[script:{name}]"
        empty = Cell(provider, dataset.name, window, counting, name, prompt, (), strategy)
        tokens = WINDOWS_TO_FILL * empty.window_tokens
        turns = doubles[provider].fill(_turns(dataset, tokens, counting), empty.model, tokens)
        cells.append(replace(empty, turns=turns))
    return cells


def _turns(dataset: Dataset, tokens: int, counting: str) -> Iterator[Turn]:
    turns = chain(dataset)
    if not dataset.is_talk:
        return turns
    return merge_turns(turns, int(tokens * CHARACTERS_A_TOKEN[counting] / TALK_TURNS))


def _replay(
    cells: Sequence[Cell], replayer: Replayer, doubles: Mapping[str, DoubleControl]
) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    problems: list[str] = []
    for cell in cells:
        row, wrong = replayer.run(cell, doubles[cell.provider])
        rows.append(row)
        problems += [f"{cell.agent}: {text}" for text in wrong]
        print(f"{cell.agent}: {progress(row)}", flush=True)
    return rows, problems


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # no server may be left behind
    sys.exit(main())
