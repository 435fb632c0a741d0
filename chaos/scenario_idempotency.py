"""One key from many clients at once: one run, one model call, and the same answer for all."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from chaos.calls import read_calls
from chaos.check import check
from chaos.client_log import Answer, Sent
from chaos.cluster import open_cluster, servers
from chaos.findings import Fault, Finding
from chaos.grounds import Grounds, open_grounds
from chaos.messages import Name, text_of
from chaos.report import Report
from chaos.scenario_senders import ROLES
from chaos.stored import read_stored

TURN_SECONDS = 0.2
TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as every client sends it."""

    path: str
    body: Mapping[str, str]
    key: str


async def run_idempotency(*, clients: int, keys: int) -> tuple[Report, ...]:
    """Send `keys` messages, each under one key from `clients` clients at once, and once more after the answer."""
    async with open_grounds() as grounds:
        return (await play_idempotency(grounds, clients=clients, keys=keys),)


async def play_idempotency(grounds: Grounds, *, clients: int, keys: int) -> Report:
    """Do it on these grounds."""
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=0)
    async with (
        open_cluster(grounds, *ROLES) as nodes,
        httpx.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits) as http,
    ):
        results = [await _one_key(http, servers(nodes), number, clients) for number in range(keys)]
    stored = await read_stored(grounds.database_url)
    calls = Counter(call.message for call in read_calls(grounds.calls_log))
    findings = [*check([sent for sent, _ in results], stored), *(f for _, found in results for f in found)]
    findings += [
        Finding(Fault.DUPLICATED, f"{message}: {times} model calls") for message, times in calls.items() if times > 1
    ]
    counts = {"keys": keys, "requests": keys * (clients + 1), "runs": len(stored.runs), "model calls": calls.total()}
    return Report("idempotency", counts, tuple(findings))


async def _one_key(
    http: httpx.AsyncClient, urls: list[str], number: int, clients: int
) -> tuple[Sent, tuple[Finding, ...]]:
    name = Name(f"key-{number}", 1)
    bodies = await _at_once(http, urls, Asked("/v1/sessions", {"agent": "plain"}, str(name)), clients)
    findings = [*_all_equal("sessions", bodies)]
    session = str(bodies[0]["id"])
    sent = Sent(session, str(name), text_of(name, slow_seconds=TURN_SECONDS))
    asked = Asked(f"/v1/sessions/{session}/messages", {"content": sent.text}, sent.key)
    answers = await _at_once(http, urls, asked, clients)
    answers += await _at_once(http, urls, asked, 1)
    findings += _all_equal(str(name), answers)
    message = answers[0].get("message")
    if isinstance(message, dict):
        sent.accept({"id": message["run_id"]}, 0.0)
        sent.answer = Answer(str(message["id"]), int(message["position"]), str(message["content"]))
    return sent, tuple(findings)


async def _at_once(http: httpx.AsyncClient, urls: list[str], asked: Asked, clients: int) -> list[dict[str, object]]:
    places = (f"{urls[i % len(urls)]}{asked.path}" for i in range(clients))
    headers = {"Idempotency-Key": asked.key}
    responses = await asyncio.gather(*(http.post(place, json=asked.body, headers=headers) for place in places))
    return [response.json() for response in responses]


def _all_equal(what: str, bodies: list[dict[str, object]]) -> list[Finding]:
    kinds = Counter(json.dumps(body, sort_keys=True) for body in bodies)
    if len(kinds) == 1:
        return []
    told = [f"{times} x {text[:200]}" for text, times in kinds.most_common()]
    return [Finding(Fault.ANSWER, f"{what}: {len(kinds)} different answers: {told}")]
