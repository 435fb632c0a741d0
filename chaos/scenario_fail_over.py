"""The primary PostgreSQL is killed under writers and its standby promoted: nothing acknowledged is lost.

The commits of the primary wait for the standby. With `is_synchronous=False` they do not, and the standby is half a
second late; then the scenario counts what is lost and promises nothing.
"""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import psutil

from chaos.asker import asking
from chaos.calls import check_read, read_calls
from chaos.check import check
from chaos.client import Client, GaveUp, open_client
from chaos.client_log import Sent
from chaos.cluster import Node, open_cluster, servers
from chaos.findings import Fault, Finding
from chaos.grounds import Grounds, lay_out
from chaos.messages import Name, text_of
from chaos.notes import check_notes
from chaos.quiet import until_jobs_over, until_quiet
from chaos.readers import Reader, check_last_showing
from chaos.report import Report
from chaos.stored import read_stored
from chaos.writers import writing
from fakes.replication import Replication, replicating
from fakes.service_process import kill_programs_using
from fakes.waiting import until_found
from throughline.db.connection.migrations import upgrade

BEFORE_SECONDS, AFTER_SECONDS = 5.0, 8.0
FEWEST_SECONDS, MOST_SECONDS = 1.0, 4.0
"""How long the standby waits after the primary's death until it is promoted."""

LAG_SECONDS = 0.5
"""How late the standby gets what commits do not wait for."""

QUIET_SECONDS = 90.0
READERS = 6
TIMEOUT_SECONDS = 30.0
CUTS = 3
STREAM_SECONDS = 8.0
"""How long the answers take that readers follow across the fail-over."""


@dataclass(frozen=True, slots=True)
class FailOver:
    """What is done: by how many writers, with how many processes at one port, and whether commits wait."""

    writers: int
    seed: int
    processes: int = 1
    is_synchronous: bool = True


@dataclass(frozen=True, slots=True)
class Times:
    """When the primary was killed, and when the standby took writes."""

    killed: float
    promoted: float

    @property
    def seconds_away(self) -> float:
        """For how long no server took writes."""
        return self.promoted - self.killed


async def run_fail_over(*, times: int, writers: int, seed: int) -> tuple[Report, ...]:
    """Fail over, each time with new servers: with one process, with two of which one dies, without waiting commits."""
    done = [
        FailOver(writers, seed + number, processes, is_synchronous)
        for number in range(times)
        for processes, is_synchronous in ((1, True), (2, True), (1, False))
    ]
    return tuple([await play_fail_over(one) for one in done])


async def play_fail_over(asked: FailOver) -> Report:
    """Fail over once under writers and readers, and check what the promoted server holds."""
    async with replicating(lag_seconds=0.0 if asked.is_synchronous else LAG_SECONDS) as replication:
        await upgrade(replication.url)
        await replication.wait_for_standby(synchronous=asked.is_synchronous)
        folder = replication.make_folder("service")
        async with lay_out(folder, database_url=replication.url, data_dir=folder) as grounds:
            try:
                return await _play(grounds, replication, asked)
            finally:
                await kill_programs_using(str(folder))


async def _play(grounds: Grounds, replication: Replication, asked: FailOver) -> Report:
    role = ("serve",) if asked.processes == 1 else ("serve", "--processes", str(asked.processes))
    url, dice = replication.url_of(replication.standby), random.Random(asked.seed)
    async with open_cluster(grounds, role) as nodes, open_client(servers(nodes)) as client:
        await _until_all_serve(nodes[0].url)
        async with (
            asking(servers(nodes)[0]) as asker,
            writing(client, asked.writers, asked.seed) as crowd,
            _reading(client, servers(nodes), dice) as read,
        ):
            await asyncio.sleep(BEFORE_SECONDS)
            _kill_child(nodes[0])
            times = await _fail_over(replication, dice)
            await asyncio.sleep(AFTER_SECONDS)
        quiet = await until_quiet(url, seconds=QUIET_SECONDS)
        unusable = await _send_again(client)
        await _until_all_over(url)
        stored = await read_stored(url)
    findings = (
        *check(client.log, stored, has_events=False),
        *check_read(stored, read_calls(grounds.calls_log)),
        *crowd.gave_up,
        *check_notes(grounds.notes),
        *asker.check(stored),
        *(finding for reader, text in read for finding in check_last_showing(reader, text)),
        *unusable,
    )
    counts = {
        "processes": asked.processes,
        "writers": asked.writers,
        "messages": len(client.log),
        **_count_lost(findings),
        "resumed runs": sum(run.attempt > 1 for run in stored.runs),
        "streams with a reset": sum(reader.was_reset for reader, _ in read),
        "without a primary s": round(times.seconds_away, 1),
        "first success after promotion s": round(asker.first_success(times.promoted), 1),
        "slowest answer s": round(crowd.slowest_seconds, 1),
        "quiet after s": round(quiet, 1),
    }
    return _report(asked, counts, findings, asker.notes(times.killed))


def _count_lost(findings: Sequence[Finding]) -> dict[str, int]:
    lost = [finding.detail for finding in findings if finding.fault is Fault.LOST]
    return {
        "accepted messages lost": sum("was accepted and is not stored" in detail for detail in lost),
        "told answers lost": sum("was told and is not stored" in detail for detail in lost),
    }


def _report(
    asked: FailOver, counts: Mapping[str, float], findings: tuple[Finding, ...], notes: tuple[str, ...]
) -> Report:
    """Return the report; where commits do not wait, findings are no broken promises and stand among the notes."""
    if asked.is_synchronous:
        return Report("fail-over", counts, findings, notes)
    told = tuple(f"{finding.fault.value}: {finding.detail}" for finding in findings)
    return Report("fail-over, asynchronous", counts, (), (*notes, *told))


async def _until_all_over(url: str) -> None:
    await until_quiet(url, seconds=QUIET_SECONDS)
    await until_jobs_over(url, seconds=QUIET_SECONDS)


async def _until_all_serve(url: str) -> None:
    """Wait for all processes at the port: one whose first start fails ends the whole service."""
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http:

        async def serve() -> bool:
            return bool((await http.get(f"{url}/health/ready")).json()["status"] == "ok")

        await until_found(serve)


def _kill_child(node: Node) -> None:
    """Kill one of several processes at the port, as where it runs on the primary's machine; others take its runs."""
    children = psutil.Process(node.program.process.pid).children()
    for child in [one for one in children if "--child" in one.cmdline()][:1]:
        child.kill()


async def _fail_over(replication: Replication, dice: random.Random) -> Times:
    """Kill the primary, and promote the standby some seconds later, as what watches both does."""
    killed = time.monotonic()
    replication.kill_primary()
    await asyncio.sleep(dice.uniform(FEWEST_SECONDS, MOST_SECONDS))
    await replication.promote()
    return Times(killed, time.monotonic())


@asynccontextmanager
async def _reading(
    client: Client, urls: Sequence[str], dice: random.Random
) -> AsyncGenerator[list[tuple[Reader, str]]]:
    """Have readers follow answers that are under way at the kill; every second one is cut, and comes back.

    Yields a list of the readers and their messages, which is filled at the end of the block.
    """
    read: list[tuple[Reader, str]] = []
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as http, asyncio.TaskGroup() as group:
        readers = [Reader(http, urls, dice, cuts=number % 2 * CUTS) for number in range(READERS)]
        tasks = [group.create_task(_follow(client, reader, number)) for number, reader in enumerate(readers)]
        yield read
        read += await asyncio.gather(*tasks)


async def _follow(client: Client, reader: Reader, number: int) -> tuple[Reader, str]:
    name = Name(f"stream-{number}", 1)
    session = await client.new_session("plain", key=str(name))
    text = text_of(name, slow_seconds=STREAM_SECONDS)
    sent = Sent(session, text, text)
    client.log.append(sent)
    await reader.send(session, text)
    sent.accept({"id": reader.run_id}, time.monotonic())
    return reader, text


async def _send_again(client: Client) -> list[Finding]:
    """Send one more message to each session, and return those that got no answer."""
    unusable: list[Finding] = []
    sessions = sorted({sent.session_id for sent in client.log})

    async def send(number: int, session: str) -> None:
        name = Name(f"again-{number}", 1)
        try:
            await client.send(Sent(session, str(name), text_of(name)))
        except GaveUp as error:
            unusable.append(Finding(Fault.STUCK, str(error)))

    await asyncio.gather(*(send(number, session) for number, session in enumerate(sessions)))
    return unusable
