"""Readers of event streams that are cut at any byte and go on at another server behind the last whole event."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx

from chaos.check import has_no_gap
from chaos.findings import Fault, Finding
from chaos.messages import answer_to
from chaos.stored import StoredEvent

ENDS = {"run.completed", "run.failed", "run.cancelled"}
LONGEST_BYTES = 4000
PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it came over the wire."""

    seq: int
    type: str
    data: dict[str, Any]  # whatever JSON the event holds


@dataclass(slots=True)
class Reader:
    """Follows one run over many connections. `dice` decides where each is cut, at most `cuts` times."""

    http: httpx.AsyncClient
    urls: Sequence[str]
    dice: random.Random
    cuts: int
    events: list[Event] = field(default_factory=list)
    run_id: str = ""
    made: int = 0

    async def send(self, session: str, text: str) -> None:
        """Send the message as a stream at one server, and read its run to the end, at all of them."""
        url = f"{self._server()}/v1/sessions/{session}/messages"
        while not self.run_id:
            await self._read("POST", url, {"Accept": "text/event-stream", "Idempotency-Key": text}, {"content": text})
        while not self.is_over:
            url = f"{self._server()}/v1/runs/{self.run_id}/events"
            await self._read("GET", url, {"Last-Event-ID": str(self.last_seq)}, None)

    async def look_back(self) -> None:
        """Ask again for what comes behind some event of the ended run, and hold it against what was read."""
        behind = self.dice.choice(self.events).seq
        self.events = [event for event in self.events if event.seq <= behind]
        url = f"{self._server()}/v1/runs/{self.run_id}/events"
        self.cuts = self.made  # no further cuts
        await self._read("GET", url, {"Last-Event-ID": str(behind)}, None)

    @property
    def last_seq(self) -> int:
        """The number of the last event read whole."""
        return self.events[-1].seq if self.events else 0

    @property
    def is_over(self) -> bool:
        """Whether the last event was read."""
        return bool(self.events) and self.events[-1].type in ENDS

    @property
    def was_reset(self) -> bool:
        """Whether it was told to discard what it had read."""
        return any(event.type == "reset" for event in self.events)

    def _server(self) -> str:
        return self.dice.choice(list(self.urls))

    async def _read(self, method: str, url: str, headers: dict[str, str], body: dict[str, str] | None) -> None:
        """Read until the end or until the connection is cut, by us after some bytes or by whatever happens."""
        allowed = self.dice.randrange(1, LONGEST_BYTES) if self.made < self.cuts else None
        try:
            async with self.http.stream(method, url, headers=headers, json=body) as response:
                await self._take(response, allowed)
        except httpx.TransportError:
            await asyncio.sleep(PAUSE_SECONDS)
        if allowed is not None and not self.is_over:
            self.made += 1

    async def _take(self, response: httpx.Response, allowed: int | None) -> None:
        if response.status_code != httpx.codes.OK:
            await asyncio.sleep(PAUSE_SECONDS)
            return
        location = response.headers.get("content-location", "")
        self.run_id = self.run_id or location.removeprefix("/v1/runs/").removesuffix("/events")
        async with aclosing(_parts(response, allowed)) as parts:
            async for part in parts:
                self.events.append(_event(part))


async def _parts(response: httpx.Response, allowed: int | None) -> AsyncGenerator[str]:
    """Yield whole events, as text, until the end or until `allowed` bytes are read."""
    waiting, read = b"", 0
    async for chunk in response.aiter_bytes():
        taken = chunk if allowed is None else chunk[: allowed - read]
        read += len(taken)
        *whole, waiting = (waiting + taken).split(b"\n\n")
        for part in whole:
            if not part.startswith(b":"):
                yield part.decode()
        if allowed is not None and read >= allowed:
            return


def _event(part: str) -> Event:
    fields = dict(line.split(": ", 1) for line in part.splitlines())
    return Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))


def _identity(event: Event | StoredEvent) -> tuple[int, str, object]:
    """Return number, name, and what can be told apart in both: stored events point at the messages that readers get.

    What a run's start and end and the results of tools show is stored elsewhere; `_shows_its_end` looks at the end.
    """
    match event.type:
        case "message.completed":
            told = event.data.get("message_id") or event.data["message"]["id"]
        case "tool.result" | "run.started" | "run.completed" | "run.failed" | "run.cancelled":
            told = None
        case _:
            told = event.data
    return event.seq, event.type, told


def check_reading(reader: Reader, text: str, stored: Sequence[StoredEvent]) -> tuple[Finding, ...]:
    """Return what the reader missed, had twice, or had otherwise than it is stored."""
    numbers = [event.seq for event in reader.events]
    findings = []
    if len(set(numbers)) != len(numbers):
        findings.append(Finding(Fault.DUPLICATED, f"{text[:30]!r}: events came twice: {numbers}"))
    if not has_no_gap(numbers):
        findings.append(Finding(Fault.EVENTS, f"{text[:30]!r}: events with a gap: {numbers}"))
    if [_identity(event) for event in reader.events] != [_identity(event) for event in stored]:
        findings.append(Finding(Fault.EVENTS, f"{text[:30]!r}: events read are not those stored"))
    shown = "".join(event.data["text"] for event in reader.events if event.type == "message.delta")
    if shown != answer_to(text):
        findings.append(Finding(Fault.ANSWER, f"{text[:30]!r}: shown {shown[:60]!r}"))
    if not all(_shows_its_end(event, reader.run_id, text) for event in reader.events):
        findings.append(Finding(Fault.ANSWER, f"{text[:30]!r}: the end is not that of its run"))
    return tuple(findings)


def check_last_showing(reader: Reader, text: str) -> tuple[Finding, ...]:
    """Return what is wrong with what a reader showed after its last `reset`, where events were lost by design.

    It may begin late in the answer, and neither mixes two tries nor repeats anything; the end has the whole answer.
    """
    resets = [index for index, event in enumerate(reader.events) if event.type == "reset"]
    last = reader.events[resets[-1] :] if resets else reader.events
    findings = []
    shown = "".join(event.data["text"] for event in last if event.type == "message.delta")
    if not answer_to(text).endswith(shown):
        findings.append(Finding(Fault.ANSWER, f"{text[:30]!r}: shown {shown[:60]!r} after the last reset"))
    if not reader.is_over or not all(_shows_its_end(event, reader.run_id, text) for event in last):
        findings.append(Finding(Fault.ANSWER, f"{text[:30]!r}: the end is not that of its run"))
    return tuple(findings)


def _shows_its_end(event: Event, run_id: str, text: str) -> bool:
    if event.type != "run.completed":
        return True
    return (event.data["run"]["id"], event.data["message"]["content"]) == (run_id, answer_to(text))
