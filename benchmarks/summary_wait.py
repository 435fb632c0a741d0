"""How long turns wait for summaries, with a summariser that takes its time: people pausing, and back to back.

`python -m benchmarks.summary_wait`. Recorded conversations are replayed into windows of 8k, all at once, once with
pauses between an answer and the next message and once without. The model answers at once, so a turn that takes half as
long as a summary has waited for one. Exits with 1 if one did although there were pauses, or fewer than 20 summaries
were adopted then.
"""

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.processes import Running, ServiceOptions, run_double, run_service
from benchmarks.replay import SAMPLE
from benchmarks.replay_agents import write_agents, write_tools
from benchmarks.replay_cell import STREAM, TURN_SECONDS, Cell
from benchmarks.replay_data import Dataset, chain, merge_turns
from benchmarks.replay_double import DoubleControl
from benchmarks.replay_readers import load_datasets
from benchmarks.replay_stages import read_turn

WINDOW, COUNTING = "8k", "cl100k"
DATASETS = "tau-bench,qmsum,ubuntu-irc"
LEAST_COMPACTIONS = 20
TALK_CHARACTERS = 1500
"""A line of a talk is short: so many characters of it are said in one message."""

_SPENT = re.compile(r"^throughline_summary_tokens_(unused_)?total{.*} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Waited:
    """What came of one replay of one data set. Seconds are of whole turns, tokens of the summariser's calls."""

    name: str
    pause_seconds: float
    seconds: tuple[float, ...]
    errors: tuple[str, ...]
    compactions: int
    summary_seconds: float

    @property
    def waiting(self) -> int:
        """How many turns waited for a summary."""
        return sum(seconds >= self.summary_seconds / 2 for seconds in self.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay and print; return the exit code."""
    options = _parse(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="summary-wait-")))
        slow = ("--summary-seconds", str(options.summary_seconds))
        double = stack.enter_context(run_double(folder, "openai", slow))
        control = stack.enter_context(contextlib.closing(DoubleControl(double.url, "openai")))
        found = load_datasets(options.data)
        datasets = [found[name] for name in options.datasets.split(",")]
        paused = [_cell(dataset, "paused", options.fill, control) for dataset in datasets]
        hurried = [_cell(dataset, "hurried", options.fill, control) for dataset in datasets]
        service = stack.enter_context(_service(folder, [*paused, *hurried], datasets, double))
        spent: list[tuple[int, int]] = [_tokens(service.url)]
        rows: list[Waited] = []
        for cells, pause in ((paused, options.pause), (hurried, 0.0)):
            rows += asyncio.run(_replay(service.url, control, cells, (pause, options.summary_seconds)))
            control.settle()
            spent.append(_tokens(service.url))
    print(render(rows, spent))
    first = [row for row in rows if row.pause_seconds]
    is_kept = not any(row.waiting or row.errors for row in first)
    return 0 if is_kept and sum(row.compactions for row in first) >= LEAST_COMPACTIONS else 1


def render(rows: Sequence[Waited], spent: Sequence[tuple[int, int]]) -> str:
    """Return the figures as a Markdown table, and what the summariser's tokens came to in each of the two replays."""
    lines = [
        "| replay | pause s | turns | failed | compactions | turns that waited | longest turn s |",
        "|:-------|--------:|------:|-------:|------------:|------------------:|---------------:|",
    ]
    lines += [
        f"| {row.name} | {row.pause_seconds:g} | {len(row.seconds)} | {len(row.errors)} | {row.compactions} "
        f"| {row.waiting} | {max(row.seconds):.2f} |"
        for row in rows
    ]
    for name, before, after in zip(("with pauses", "back to back"), spent, spent[1:], strict=False):
        paid, unused = after[0] - before[0], after[1] - before[1]
        lines.append(f"\n{name}: {paid} summarizer tokens paid, {unused} of them never adopted ({unused / paid:.1%})")
    return "\n".join([*lines, *(f"{row.name}: {error}" for row in rows for error in row.errors)])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.summary_wait", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE)
    parser.add_argument("--datasets", default=DATASETS)
    parser.add_argument("--fill", type=int, default=5, help="how many windows each conversation is long")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between an answer and the next message")
    parser.add_argument("--summary-seconds", type=float, default=3.0, help="how long a summary takes")
    return parser.parse_args(arguments)


def _cell(dataset: Dataset, kind: str, windows: int, double: DoubleControl) -> Cell:
    name = f"{kind}-{dataset.name}"
    prompt = f"{dataset.system_prompt}\n\n[script:{name}]"
    empty = Cell("openai", dataset.name, WINDOW, COUNTING, name, prompt, ())
    turns = chain(dataset)
    said = merge_turns(turns, TALK_CHARACTERS) if dataset.is_talk else turns
    return empty.with_turns(double.fill(said, empty.model, windows * empty.window_tokens))


@contextlib.contextmanager
def _service(folder: Path, cells: Sequence[Cell], datasets: Sequence[Dataset], double: Running) -> Iterator[Running]:
    write_agents(folder / "agents", cells, {"openai": double.url})
    write_tools(folder / "tools.json", cells, datasets)
    options = ServiceOptions(
        folder=folder, agents_dir=folder / "agents", environment={"REPLAY_TOOLS": str(folder / "tools.json")}
    )
    with run_service(options) as service:
        yield service


async def _replay(url: str, double: DoubleControl, cells: Sequence[Cell], pace: tuple[float, float]) -> list[Waited]:
    async with httpx.AsyncClient(base_url=url, timeout=TURN_SECONDS) as http:
        return list(await asyncio.gather(*(_converse(http, double, cell, pace) for cell in cells)))


async def _converse(http: httpx.AsyncClient, double: DoubleControl, cell: Cell, pace: tuple[float, float]) -> Waited:
    """Play the turns of one cell, one after the other, and time each."""
    created = (await http.post("/v1/sessions", json={"agent": cell.agent})).raise_for_status()
    path = f"/v1/sessions/{created.json()['id']}/messages"
    pause, summary_seconds = pace
    seconds: list[float] = []
    errors: list[str] = []
    compactions = 0
    for turn in cell.turns:
        await asyncio.sleep(pause)
        await asyncio.to_thread(double.script, cell.agent, turn)
        began = time.monotonic()
        response = (await http.post(path, json={"content": turn.user}, headers=STREAM)).raise_for_status()
        seconds.append(time.monotonic() - began)
        told = read_turn(response.text)
        errors += [told.error] if told.error else []
        compactions += sum(stage.outcome == "adopted" for stage in told.stages)
    return Waited(cell.dataset, pause, tuple(seconds), tuple(errors), compactions, summary_seconds)


def _tokens(url: str) -> tuple[int, int]:
    """Return what summarisers took so far, in and out, and how much of it was never adopted."""
    metrics = httpx.get(f"{url}/metrics").raise_for_status().text
    found = [(bool(unused), int(float(value))) for unused, value in _SPENT.findall(metrics)]
    return sum(value for unused, value in found if not unused), sum(value for unused, value in found if unused)


if __name__ == "__main__":
    sys.exit(main())
