"""Turns per second of one, two and more processes with one port, and what a turn takes with many users of a slow model.

`python -m benchmarks.scaling`. Clients, model double and PostgreSQL share the machine with the service. To leave
them enough of it, each process of the service gets only a share of a core (`--share`), by a control group of its own,
as if each had an idle core. That needs root, on Linux. The bare LangGraph service of
`benchmarks.throughput` is measured beside it: as many servers, with the same share each, and clients divided evenly.

Then `--users` people talk to two processes without such a limit. Each asks, waits for the model's `--answer-seconds`,
and pauses for `--think-seconds` on average. What a turn takes beyond the model's time is what is added.
"""

import argparse
import asyncio
import itertools
import random
import ssl
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import psutil

from benchmarks.figures import percentile
from benchmarks.processes import Running, StartFailed, run_double, run_postgres, run_server, run_service, write_agent
from benchmarks.throughput_load import AGENT, QUESTION, press

CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_MICROSECONDS = 10_000
WARM_SECONDS = 3.0
START_SECONDS = 90.0
AIM = 1.85
"""The least turns per second of two processes, as a multiple of one's."""


@contextmanager
def limited(pids: Sequence[int], share: float) -> Generator[None]:
    """Limit each process, with its threads and children, to this share of a core."""
    groups = []
    try:
        for pid in pids:
            group = CPU_GROUPS / f"throughline-{pid}"
            group.mkdir()
            groups.append(group)
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(round(PERIOD_MICROSECONDS * share)))
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for group in groups:
            _dissolve(group)


def _dissolve(group: Path) -> None:
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):  # it has just ended
            (CPU_GROUPS / "cgroup.procs").write_text(pid)
    group.rmdir()


@contextmanager
def run_ours(folder: Path, database_url: str, double_url: str, processes: int) -> Generator[Running]:
    """Run the service with so many processes; yields once all of them serve."""
    environment = {"DATABASE_URL": database_url, "PROCESSES": str(processes)}
    with run_service(folder, environment, double_url=double_url) as running:
        deadline = time.monotonic() + START_SECONDS
        while httpx.get(f"{running.url}/health/ready").json()["status"] != "ok":
            if time.monotonic() > deadline:
                raise StartFailed(f"{processes} processes do not all serve")
            time.sleep(0.2)
        yield running


@contextmanager
def run_bare(folder: Path, database_url: str, double_url: str, processes: int) -> Generator[list[Running]]:
    """Run so many bare services, each on a port of its own."""
    command = ["benchmarks.bare_service", "--database-url", database_url, "--model-url", double_url]
    with ExitStack() as stack:
        yield [stack.enter_context(run_server(command, folder, {}, probe="/health/ready")) for _ in range(processes)]


def serving_pids(running: Running) -> list[int]:
    """Return the processes that serve: the children of a supervisor, or the process itself."""
    return [child.pid for child in psutil.Process(running.pid).children()] or [running.pid]


async def limited_rate(pids: Sequence[int], urls: Sequence[str], options: argparse.Namespace) -> float:
    """Return the turns per second at all addresses together, with limited processes and the clients divided evenly."""
    each = max(1, options.clients // len(urls))
    with limited(pids, options.share):
        await asyncio.gather(*(press(url, each, WARM_SECONDS) for url in urls))
        return sum(found.rate for found in await asyncio.gather(*(press(url, each, options.seconds) for url in urls)))


async def compare(folder: Path, database_url: str, options: argparse.Namespace) -> bool:
    """Print turns per second by number of processes, and return whether the aim is reached."""
    rates: dict[int, tuple[list[float], list[float]]] = {count: ([], []) for count in options.processes}
    with run_double(folder) as double:
        for _, (count, (ours, bare)) in itertools.product(range(options.rounds), rates.items()):
            with run_ours(folder, database_url, double.url, count) as running:
                ours.append(await limited_rate(serving_pids(running), [running.url], options))
            with run_bare(folder, database_url, double.url, count) as servers:
                pids, urls = [server.pid for server in servers], [server.url for server in servers]
                bare.append(await limited_rate(pids, urls, options))
    print(f"{options.clients} clients, {options.share:.0%} of a core for each process, mean of {options.rounds}")
    print("| processes | turns/s | × one | bare turns/s | × one | ours / bare |\n|---|---|---|---|---|---|")
    means = {count: [sum(side) / len(side) for side in sides] for count, sides in rates.items()}
    one = means[options.processes[0]]
    for count, (ours_mean, bare_mean) in means.items():
        multiples = f"{ours_mean / one[0]:.2f} | {bare_mean:.1f} | {bare_mean / one[1]:.2f}"
        print(f"| {count} | {ours_mean:.1f} | {multiples} | {ours_mean / bare_mean:.2f} |")
    return means[2][0] >= AIM * one[0] if 2 in means and 1 in means else True


async def talk_slowly(url: str, tls: ssl.SSLContext, options: argparse.Namespace) -> Sequence[float]:
    """Talk in one session until the time is over; return what each turn took."""
    taken: list[float] = []
    async with httpx.AsyncClient(base_url=url, timeout=120, verify=tls) as http:
        until = time.monotonic() + options.user_seconds
        await asyncio.sleep(random.uniform(0, options.think_seconds))
        session = (await http.post("/v1/sessions", json={"agent": AGENT})).raise_for_status().json()["id"]
        while time.monotonic() < until:
            began = time.monotonic()
            body = {"content": QUESTION.format(number=len(taken))}
            (await http.post(f"/v1/sessions/{session}/messages", json=body)).raise_for_status()
            taken.append(time.monotonic() - began)
            await asyncio.sleep(random.expovariate(1 / options.think_seconds))
    return taken


async def users(folder: Path, database_url: str, options: argparse.Namespace) -> None:
    """Print what turns of many users take beyond the model's time."""
    seconds, tls = options.answer_seconds, ssl.create_default_context()
    with (
        run_double(folder, answer_seconds=seconds) as double,
        run_ours(folder, database_url, double.url, 2) as running,
    ):
        await press(running.url, 16, WARM_SECONDS)
        talks = await asyncio.gather(*(talk_slowly(running.url, tls, options) for _ in range(options.users)))
    turns = [taken - seconds for talk in talks for taken in talk]
    average = len(turns) / options.user_seconds
    added = ", ".join(f"p{percent} {1000 * percentile(turns, percent):.0f} ms" for percent in (50, 90, 99))
    print(f"{options.users} users of a {seconds:g} s model, 2 processes, {average:.1f} turns/s: {added} added")


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if two processes do not make enough of one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--processes", type=_numbers, default=(1, 2, 4))
    parser.add_argument("--share", type=float, default=0.2, help="of a core, for each process")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--users", type=int, default=500, help="0: leave them out")
    parser.add_argument("--user-seconds", type=float, default=40.0)
    parser.add_argument("--answer-seconds", type=float, default=1.0)
    parser.add_argument("--think-seconds", type=float, default=15.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="scaling-") as name:
        write_agent(Path(name), AGENT)
        async with run_postgres(Path(name)) as url:
            is_reached = await compare(Path(name), url, options)
            if options.users:
                await users(Path(name), url, options)
    print("The aim is reached." if is_reached else f"Two processes make less than {AIM} of one.")
    return 0 if is_reached else 1


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
