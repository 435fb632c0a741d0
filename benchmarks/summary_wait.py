"""How long turns wait for summaries, with a summariser that takes its time: people pausing, and back to back.

`python -m benchmarks.summary_wait`. Recorded conversations are replayed into windows of 8k, all at once, once with
pauses between an answer and the next message and once without. A turn's wait is the time between the events
`context.compaction.started` and `context.compaction.finished` as they arrive, all of a turn together. Of the
summariser's tokens those count as adopted whose text is part of a summary that was in use; texts that were merged into
another one before are told apart. Exits with 1 if a turn waited although there were pauses, or fewer than 20 summaries
were adopted then.
"""

import argparse
import asyncio
import contextlib
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # ships no types
import httpx

from benchmarks.processes import Running, ServiceOptions, run_double, run_service
from benchmarks.replay import SAMPLE
from benchmarks.replay_agents import write_agents, write_tools
from benchmarks.replay_cell import STREAM, TURN_SECONDS, Cell
from benchmarks.replay_data import Dataset, chain, merge_turns
from benchmarks.replay_double import DoubleControl
from benchmarks.replay_readers import load_datasets
from benchmarks.replay_stages import read_turn
from benchmarks.servers import dsn_of, run_postgres

WINDOW, COUNTING = "8k", "cl100k"
DATASETS = "tau-bench,qmsum,ubuntu-irc"
LEAST_COMPACTIONS = 20
NOTICEABLE_SECONDS = 0.2
"""Events are stored and sent within 50 ms; a shorter wait is told as none."""

TALK_CHARACTERS = 1500
"""A line of a talk is short: so many characters of it are said in one message."""

STARTED, FINISHED = "event: context.compaction.started", "event: context.compaction.finished"
_REFUSED = re.compile(r"^throughline_summary_tokens_unused_total{.*} (\S+)$", re.MULTILINE)
_WRITTEN = """
    with used as (
        select distinct unnest(v.stretch_ids) as id from summary_versions v
        where v.session_id = any($1) and v.state in ('adopted', 'superseded')
    )
    select coalesce(sum(t.input_tokens + t.output_tokens), 0) as stored,
        coalesce(sum(t.input_tokens + t.output_tokens) filter (where u.id is not null), 0) as adopted,
        coalesce(sum(t.input_tokens + t.output_tokens) filter (where u.id is null and exists (
            select 1 from summaries m where m.session_id = t.session_id and m.level > t.level
                and m.from_position <= t.from_position and m.through_position >= t.through_position)), 0) as merged
    from summaries t left join used u on u.id = t.id where t.session_id = any($1)
"""


@dataclass(frozen=True, slots=True)
class Waited:
    """What came of one replay of one data set. Seconds are of whole turns, `waits` of the summaries before answers."""

    name: str
    session_id: str
    pause_seconds: float
    seconds: tuple[float, ...]
    waits: tuple[float, ...]
    errors: tuple[str, ...]
    compactions: int

    @property
    def waiting(self) -> int:
        """How many turns waited for a summary."""
        return sum(seconds > NOTICEABLE_SECONDS for seconds in self.waits)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The summariser's tokens of one replay, in and out: stored texts, those in use, those merged before, refused."""

    stored: int
    adopted: int
    merged: int
    refused: int

    @property
    def paid(self) -> int:
        """All of them."""
        return self.stored + self.refused


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay and print; return the exit code."""
    options = _parse(arguments)
    rows, tokens = asyncio.run(_measure(options))
    print(render(rows, tokens))
    first = [row for row in rows if row.pause_seconds]
    is_kept = not any(row.waiting or row.errors for row in first)
    return 0 if is_kept and sum(row.compactions for row in first) >= LEAST_COMPACTIONS else 1


async def _measure(options: argparse.Namespace) -> tuple[list[Waited], list[Tokens]]:
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="summary-wait-")))
        slow = ("--summary-seconds", str(options.summary_seconds))
        double = stack.enter_context(run_double(folder, "openai", slow))
        control = stack.enter_context(contextlib.closing(DoubleControl(double.url, "openai")))
        found = load_datasets(options.data)
        datasets = [found[name] for name in options.datasets.split(",")]
        paused = [_cell(dataset, "paused", options.fill, control) for dataset in datasets]
        hurried = [_cell(dataset, "hurried", options.fill, control) for dataset in datasets]
        url = await stack.enter_async_context(run_postgres(folder))
        service = await stack.enter_async_context(_service(folder, [*paused, *hurried], datasets, double, url))
        rows: list[Waited] = []
        tokens: list[Tokens] = []
        refused = 0
        for cells, pause in ((paused, options.pause), (hurried, 0.0)):
            played = await _replay(service.url, control, cells, pause)
            await asyncio.to_thread(control.settle)
            before, refused = refused, await _refused(service.url)
            tokens.append(await _tokens(url, played, refused - before))
            rows += played
        return rows, tokens


def render(rows: Sequence[Waited], tokens: Sequence[Tokens]) -> str:
    """Return the figures as a Markdown table, and what the summariser's tokens came to in each of the two replays."""
    lines = [
        "| replay | pause s | turns | failed | compactions | turns that waited | longest wait s | longest turn s |",
        "|:-------|--------:|------:|-------:|------------:|------------------:|---------------:|---------------:|",
    ]
    lines += [
        f"| {row.name} | {row.pause_seconds:g} | {len(row.seconds)} | {len(row.errors)} | {row.compactions} "
        f"| {row.waiting} | {max(row.waits):.2f} | {max(row.seconds):.2f} |"
        for row in rows
    ]
    for name, found in zip(("with pauses", "back to back"), tokens, strict=True):
        never = found.stored - found.adopted - found.merged
        lines.append(
            f"\n{name}: {found.paid:,} summarizer tokens paid; {found.adopted:,} for texts in use, "
            f"{found.merged:,} for texts merged before, {never:,} ({never / max(found.paid, 1):.1%}) for texts never "
            f"adopted, {found.refused:,} for texts refused or late"
        )
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


@contextlib.asynccontextmanager
async def _service(
    folder: Path, cells: Sequence[Cell], datasets: Sequence[Dataset], double: Running, database_url: str
) -> AsyncIterator[Running]:
    write_agents(folder / "agents", cells, {"openai": double.url})
    write_tools(folder / "tools.json", cells, datasets)
    environment = {"REPLAY_TOOLS": str(folder / "tools.json"), "DATABASE_URL": database_url}
    options = ServiceOptions(folder=folder, agents_dir=folder / "agents", environment=environment)
    with run_service(options) as service:
        yield service


async def _replay(url: str, double: DoubleControl, cells: Sequence[Cell], pause: float) -> list[Waited]:
    async with httpx.AsyncClient(base_url=url, timeout=TURN_SECONDS) as http:
        return list(await asyncio.gather(*(_converse(http, double, cell, pause) for cell in cells)))


async def _converse(http: httpx.AsyncClient, double: DoubleControl, cell: Cell, pause: float) -> Waited:
    """Play the turns of one cell, one after the other, and time each."""
    created = (await http.post("/v1/sessions", json={"agent": cell.agent})).raise_for_status()
    session_id = str(created.json()["id"])
    seconds: list[float] = []
    waits: list[float] = []
    errors: list[str] = []
    compactions = 0
    for turn in cell.turns:
        await asyncio.sleep(pause)
        await asyncio.to_thread(double.script, cell.agent, turn)
        began = time.monotonic()
        stream, waited = await _say(http, f"/v1/sessions/{session_id}/messages", turn.user)
        seconds.append(time.monotonic() - began)
        waits.append(waited)
        told = read_turn(stream)
        errors += [told.error] if told.error else []
        compactions += sum(stage.outcome == "adopted" for stage in told.stages)
    return Waited(cell.dataset, session_id, pause, tuple(seconds), tuple(waits), tuple(errors), compactions)


async def _say(http: httpx.AsyncClient, path: str, text: str) -> tuple[str, float]:
    """Send a message; return the stream of its run, and how many seconds it stood still for compactions."""
    lines: list[str] = []
    waited, since = 0.0, None
    async with http.stream("POST", path, json={"content": text}, headers=STREAM) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            lines.append(line)
            if line == STARTED:
                since = time.monotonic()
            elif line == FINISHED and since is not None:
                waited, since = waited + time.monotonic() - since, None
    return "\n".join(lines), waited


async def _tokens(database_url: str, rows: Sequence[Waited], refused: int) -> Tokens:
    connection = await asyncpg.connect(dsn_of(database_url))
    try:
        found = await connection.fetchrow(_WRITTEN, [UUID(row.session_id) for row in rows])
    finally:
        await connection.close()
    return Tokens(int(found["stored"]), int(found["adopted"]), int(found["merged"]), refused)


async def _refused(url: str) -> int:
    """Return how many tokens went, so far, into texts that were refused, too late or out of date."""
    async with httpx.AsyncClient() as http:
        metrics = (await http.get(f"{url}/metrics")).raise_for_status().text
    return sum(int(float(value)) for value in _REFUSED.findall(metrics))


if __name__ == "__main__":
    sys.exit(main())
