"""Streams begun on one server, cut anywhere, gone on with on the other: no event missing, none twice."""

import asyncio
import random

import httpx

from chaos.check import check
from chaos.client import Client
from chaos.client_log import Sent
from chaos.cluster import open_cluster, servers
from chaos.findings import Finding
from chaos.grounds import Grounds, open_grounds
from chaos.messages import Name, text_of
from chaos.quiet import until_quiet
from chaos.readers import Reader, check_reading
from chaos.report import Report
from chaos.scenario_senders import ROLES
from chaos.stored import StoredEvent, read_stored

TURN_SECONDS = 1.0
CUTS_PER_STREAM = 8
AT_ONCE = 12
TIMEOUT_SECONDS = 30.0


async def run_streams(*, cuts: int, seed: int) -> tuple[Report, ...]:
    """Read streams, twelve at once, until `cuts` connections have been cut."""
    async with open_grounds() as grounds:
        return (await play_streams(grounds, cuts=cuts, dice=random.Random(seed)),)


async def play_streams(grounds: Grounds, *, cuts: int, dice: random.Random) -> Report:
    """Do it on these grounds."""
    read: list[tuple[Reader, Sent]] = []
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=0)
    async with (
        open_cluster(grounds, *ROLES) as nodes,
        httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits) as http,
    ):
        client = Client(http, servers(nodes))
        while sum(reader.made for reader, _ in read) < cuts:
            readers = [Reader(http, servers(nodes), dice, CUTS_PER_STREAM) for _ in range(AT_ONCE)]
            read += await asyncio.gather(*(_follow(client, r, len(read) + i) for i, r in enumerate(readers)))
        await until_quiet(grounds.database_url)
    stored = await read_stored(grounds.database_url)
    findings = [*check([sent for _, sent in read], stored), *_readings(read, stored.events)]
    counts = {
        "streams": len(read),
        "cuts": sum(reader.made for reader, _ in read),
        "events": sum(len(reader.events) for reader, _ in read),
    }
    return Report("streams", counts, tuple(findings))


async def _follow(client: Client, reader: Reader, number: int) -> tuple[Reader, Sent]:
    name = Name(f"stream-{number}", 1)
    session = await client.new_session("noting", key=str(name))
    text = text_of(name, uses_tools=number % 2 == 0, slow_seconds=TURN_SECONDS)
    sent = Sent(session, text, text)
    await reader.send(session, text)
    await reader.look_back()
    sent.accept({"id": reader.run_id}, 0.0)
    return reader, sent


def _readings(read: list[tuple[Reader, Sent]], stored: tuple[StoredEvent, ...]) -> list[Finding]:
    by_run: dict[str, list[StoredEvent]] = {}
    for event in stored:
        by_run.setdefault(event.run_id, []).append(event)
    return [f for reader, sent in read for f in check_reading(reader, sent.text, by_run.get(reader.run_id, ()))]
