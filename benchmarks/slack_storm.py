"""A storm of Slack events against the real service, which is killed in the middle of it again and again.

`python -m benchmarks.slack_storm`. Every event is delivered one to four times in random order, as Slack repeats what
it saw no acknowledgement for. Told are: messages without an answer or with more than one, the time to acknowledge, and
how many forged or stale requests were taken. The time is that of every delivery during which the service was not
killed; one that was not acknowledged, by an error or within Slack's three seconds, counts as endless.
"""

import argparse
import asyncio
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.figures import percentile
from benchmarks.processes import Running, run_postgres, run_service
from fakes.raw_sql import run_sql
from fakes.slack_double import BOT_TOKEN, BOT_USER, SIGNING_SECRET, Said, Sender, SlackDouble, say, serve_slack, sign
from fakes.slack_double.payloads import app_mention, message

CONNECTIONS = 400
RATE = 15.0
"""Almost twice what Slack sends at most: 30,000 events an hour and workspace, then it says `app_rate_limited`
(https://docs.slack.dev/apis/events-api/#rate-limiting)."""

RETRY_SECONDS = (0.5, 8.0, 25.0, 40.0)
THREADS = 40
TIMEOUT_SECONDS = 60.0
CALM_SECONDS = 5.0
ACK_AIM_SECONDS = 1.0


@dataclass(slots=True)
class Storm:
    """What is sent, and the service it is sent to, which is another one after each kill."""

    folder: Path
    slack: SlackDouble
    url: str
    client: httpx.AsyncClient
    stack: ExitStack = field(default_factory=ExitStack)
    service: Running | None = None
    is_up: asyncio.Event = field(default_factory=asyncio.Event)
    kills: int = 0
    acks: list[float] = field(default_factory=list)

    async def start(self) -> None:
        """Start the service."""
        environment = {
            "DATABASE_URL": self.url,
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_SIGNING_SECRET": SIGNING_SECRET,
            "SLACK_API_URL": self.slack.url,
            "LEASE_SECONDS": "3",
        }
        self.service = await asyncio.to_thread(self.stack.enter_context, run_service(self.folder, environment))
        self.is_up.set()

    async def count(self, statement: str) -> int:
        """Return the number that a statement selects."""
        [(number,)] = await run_sql(self.url, statement)
        assert isinstance(number, int)
        return number

    async def kill(self) -> None:
        """Kill the service and start another."""
        assert self.service is not None
        self.is_up.clear()
        self.kills += 1
        os.kill(self.service.pid, signal.SIGKILL)
        await asyncio.to_thread(self.stack.close)
        await self.start()

    async def deliver(self, payload: dict[str, object]) -> bool:
        """Deliver one event as Slack does; False where Slack would have given up."""
        for number, pause in enumerate((0.0, *RETRY_SECONDS)):
            await asyncio.sleep(pause)
            if await self._once(payload, retry=number):
                return True
        return False

    async def _once(self, payload: dict[str, object], retry: int) -> bool:
        assert self.service is not None
        was_up, kills = self.is_up.is_set(), self.kills
        sender = Sender(self.client, path=f"{self.service.url}/slack/events")
        delivery = await sender.once(payload, retry=retry)
        is_acknowledged = httpx.codes.is_success(delivery.status)
        if was_up and kills == self.kills:
            self.acks.append(delivery.seconds if is_acknowledged else math.inf)
        return is_acknowledged


async def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm and print; return 1 if anything is not as it must be."""
    options = _parse(arguments)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slack-storm-")))
        url = await stack.enter_async_context(run_postgres(folder))
        slack = await stack.enter_async_context(serve_slack())
        client = httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_connections=CONNECTIONS))
        storm = Storm(folder, slack, url, await stack.enter_async_context(client))
        stack.callback(storm.stack.close)
        await storm.start()
        return await _run(storm, options)


async def _run(storm: Storm, options: argparse.Namespace) -> int:
    rng = random.Random(options.seed)
    opened = [say(f"<@{BOT_USER}> let us talk", channel=f"C0ROOM{n:04}") for n in range(THREADS)]
    for said in opened:
        await storm.deliver(app_mention(said))
    messages, payloads = _storm(options.events, opened, rng)
    deliveries = [payload for payload in payloads for _ in range(rng.randint(1, 4))]
    rng.shuffle(deliveries)
    print(f"{len(payloads)} events ({len(messages)} messages) in {len(deliveries)} deliveries", flush=True)
    started = time.monotonic()
    killing = asyncio.create_task(_kill_now_and_then(storm, options.kills, options.pause))
    acknowledged = await _deliver_all(storm, deliveries, options.rate)
    print(f"acknowledged {acknowledged} of them in {time.monotonic() - started:.0f} s", flush=True)
    await killing
    expected = len(messages) + len(opened)
    await _until_answered(storm, expected)
    print(f"answered after {time.monotonic() - started - CALM_SECONDS:.0f} s, {storm.kills} kills", flush=True)
    return 0 if all([await _is_exact(storm, expected), await _is_safe(storm, options.forged), _is_prompt(storm)]) else 1


async def _is_exact(storm: Storm, expected: int) -> bool:
    """Print how the messages were answered; return whether each was, once."""
    posted = storm.slack.workspace.posted
    runs = Counter(str((item.metadata or {}).get("event_payload", {}).get("run", "")) for item in posted)
    figures = {
        "answered": len(runs) - ("" in runs),
        "without_an_answer": max(0, expected - len(runs)),
        "answered_twice": sum(1 for count in runs.values() if count > 1),
        "posted_without_a_run": runs.get("", 0),
        "still_streaming": sum(item.is_streaming for item in posted),
        "runs_not_succeeded": await storm.count("select count(*) from runs where status <> 'succeeded'"),
        "runs_too_many": await storm.count("select count(*) from runs") - expected,
        "not_delivered": await storm.count(
            "select count(*) from slack_deliveries where status <> 'delivered' or run_id is null"
        ),
    }
    print(json.dumps(figures))
    return figures.pop("answered") == expected and not any(figures.values())


async def _is_safe(storm: Storm, forged: int) -> bool:
    """Send requests that are not Slack's; return whether all were refused and none was stored."""
    assert storm.service is not None
    before, refused = await storm.count("select count(*) from slack_events"), 0
    for number in range(forged):
        body = json.dumps(message(say(f"forged {number}")))
        signatures = [sign(body, "not the secret"), sign(body, at=time.time() - 301), sign(body + " "), {}]
        headers = signatures[number % len(signatures)]
        response = await storm.client.post(f"{storm.service.url}/slack/events", content=body, headers=headers)
        refused += response.status_code == httpx.codes.UNAUTHORIZED
    stored = await storm.count("select count(*) from slack_events") - before
    print(f"forged or stale: {refused} of {forged} refused, {stored} stored")
    return refused == forged and not stored


def _is_prompt(storm: Storm) -> bool:
    median, p99, slowest = (percentile(storm.acks, percent) for percent in (50, 99, 100))
    print(
        f"acknowledgement: median {median * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, slowest {slowest * 1000:.0f} ms, "
        f"none {storm.acks.count(math.inf)}, of {len(storm.acks)} deliveries while the service was up"
    )
    return p99 < ACK_AIM_SECONDS


def _storm(events: int, opened: list[Said], rng: random.Random) -> tuple[list[Said], list[dict[str, object]]]:
    """Half direct messages, three in ten events of mentions (two each), the rest replies in threads under way."""
    direct = [say(f"question {n}", channel=f"D0{n % 200:07}", user=f"U0{n % 200:07}") for n in range(events // 2)]
    mentioned = [
        say(f"<@{BOT_USER}> question {n}", channel=f"C0ROOM{n % THREADS:04}", user=f"U0{n % 200:07}")
        for n in range(events * 3 // 20)
    ]
    rest = events - len(direct) - 2 * len(mentioned)
    threads = [rng.choice(opened) for _ in range(rest)]
    replies = [say(f"reply {n}", channel=item.channel, thread_ts=item.ts) for n, item in enumerate(threads)]
    payloads = [message(said) for said in (*direct, *mentioned, *replies)] + [app_mention(said) for said in mentioned]
    return [*direct, *mentioned, *replies], payloads


async def _deliver_all(storm: Storm, deliveries: list[dict[str, object]], rate: float) -> int:
    """Deliver `rate` a second, whatever became of the earlier ones; return how many were acknowledged."""
    sending: list[asyncio.Task[bool]] = []
    started = time.monotonic()
    for number, payload in enumerate(deliveries):
        await asyncio.sleep(max(0.0, number / rate - (time.monotonic() - started)))
        sending.append(asyncio.create_task(storm.deliver(payload)))
    return sum(await asyncio.gather(*sending))


async def _kill_now_and_then(storm: Storm, kills: int, pause: float) -> None:
    for _ in range(kills):
        await asyncio.sleep(pause)
        await storm.kill()


async def _until_answered(storm: Storm, expected: int) -> None:
    """Wait until as many answers stand as messages were sent, or no more come, and a while longer for any too many."""
    seen, since = 0, time.monotonic()
    while seen < expected and time.monotonic() - since < TIMEOUT_SECONDS:
        done = sum(not item.is_streaming for item in storm.slack.workspace.posted)
        if done != seen:
            seen, since = done, time.monotonic()
        await asyncio.sleep(0.5)
    await asyncio.sleep(CALM_SECONDS)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--forged", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--pause", type=float, default=20.0, help="seconds between a start and the next kill")
    parser.add_argument("--rate", type=float, default=RATE, help="deliveries a second")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
