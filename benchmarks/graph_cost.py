"""What a turn of an agent that is a graph costs, beside the same graph served bare and an agent of the service's own.

`python -m benchmarks.graph_cost`. Each turn asks the instant model twice and calls one tool. The bare graph has
LangGraph's checkpointer in memory and stores nothing. Wall time is the median of turns one after the other, CPU that of
the serving process. Both are means of the rounds.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.bare_graph import SYSTEM_PROMPT, look_up
from benchmarks.figures import aligned, cpu_seconds
from benchmarks.processes import MODEL, Running, run_postgres, run_server, run_service, write_agent

GRAPH, OWN = "graph", "own"
WARM_UP_TURNS = 10


def own_tool(question: str) -> str:
    """Return what is known of a question."""
    return str(look_up.invoke({"question": question}))


@dataclass(frozen=True, slots=True)
class Target:
    """What is measured: a process, and the agent that its sessions are opened with."""

    name: str
    running: Running
    agent: str


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of a turn: wall time (median) and CPU (mean)."""

    wall_ms: float
    cpu_ms: float


@contextmanager
def run_targets(folder: Path, database_url: str) -> Generator[list[Target]]:
    """Run the service with both agents, and the bare graph."""
    write_agent(folder, GRAPH, system_prompt="", graph="benchmarks.bare_graph:make_graph")
    write_agent(folder, OWN, system_prompt=SYSTEM_PROMPT, tools=["benchmarks.graph_cost:own_tool"])
    environment = {"DATABASE_URL": database_url, "DEFAULT_LLM": f"openai:{MODEL}"}
    with ExitStack() as stack:
        ours = stack.enter_context(run_service(folder, environment, module="benchmarks.instant_model"))
        bare = stack.enter_context(run_server(["benchmarks.bare_graph"], folder, {}, probe="/health/ready"))
        yield [Target("graph, bare", bare, ""), Target("graph, served", ours, GRAPH), Target("own agent", ours, OWN)]


async def measure(target: Target, turns: int) -> Cost:
    """Play turns in a new session."""
    async with httpx.AsyncClient(base_url=target.running.url, timeout=60) as http:
        created = (await http.post("/v1/sessions", json={"agent": target.agent})).raise_for_status()
        path = f"/v1/sessions/{created.json()['id']}/messages"
        await _play(http, path, WARM_UP_TURNS)
        cpu = cpu_seconds(target.running.pid)
        walls = await _play(http, path, turns)
        return Cost(1000 * statistics.median(walls), 1000 * (cpu_seconds(target.running.pid) - cpu) / turns)


async def _play(http: httpx.AsyncClient, path: str, turns: int) -> list[float]:
    walls: list[float] = []
    for number in range(turns):
        began = time.perf_counter()
        (await http.post(path, json={"content": f"What is known of number {number}?"})).raise_for_status()
        walls.append(time.perf_counter() - began)
    return walls


def render(costs: dict[str, list[Cost]]) -> str:
    """Return the means of the rounds as a Markdown table, with the difference to the first row."""
    means = {name: _mean(found) for name, found in costs.items()}
    base = next(iter(means.values()))
    rows = [
        (name, f"{cost.wall_ms:.1f}", f"{cost.wall_ms - base.wall_ms:+.1f}", f"{cost.cpu_ms:.1f}")
        for name, cost in means.items()
    ]
    return aligned([("turn of", "wall ms", "beside bare", "CPU ms"), *rows])


def _mean(costs: Sequence[Cost]) -> Cost:
    return Cost(statistics.mean(cost.wall_ms for cost in costs), statistics.mean(cost.cpu_ms for cost in costs))


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph_cost", description=__doc__)
    parser.add_argument("--turns", type=int, default=40, help="turns of one measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="graph-cost-") as name:
        async with run_postgres(Path(name)) as url:
            with run_targets(Path(name), url) as targets:
                rounds = [[await measure(one, options.turns) for one in targets] for _ in range(options.rounds)]
    print(render({target.name: list(costs) for target, costs in zip(targets, zip(*rounds, strict=True), strict=True)}))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
