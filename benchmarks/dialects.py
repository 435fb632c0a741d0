"""Turns per second of one service over each of its interfaces: the same turns, asked for in our form and in others'.

`python -m benchmarks.dialects`. Clients that never pause talk in sessions of a few turns to one process with a model
inside it that answers at once. The interfaces are measured one after the other, round by round, so that whatever slows
the machine slows all. Each row says what a turn takes and costs, and the median of the rounds' ratios of turns per
second to those of the native interface, streamed to streamed. Exits with 1 if a ratio is under the aim.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

from benchmarks.figures import aligned, connected
from benchmarks.processes import MODEL, run_service, write_agent
from benchmarks.statement_log import run_logged_postgres
from benchmarks.throughput import SHORT_SECONDS, Target, warmed_target
from benchmarks.throughput_load import AGENT, Measured, NativeTalk, Post, Talk, press
from benchmarks.throughput_table import Side, Used, cost_of

AIM_RATIO = 0.95
FIGURES = ("turns/s", "ratio", "p50 ms", "p95 ms", "SQL", "commits", "CPU ms")
EVENTS = "text/event-stream"


class Unfinished(Exception):
    """A stream ended without the event that says that the answer is complete."""


class StreamedNativeTalk(NativeTalk):
    """A session over our own interface, whose turns are streamed."""

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it. Raises Unfinished."""
        answer = await post(self.path, {"content": question}, EVENTS)
        _check_end(answer.content, b"event: run.completed")


@dataclass(slots=True)
class ConversationTalk:
    """A conversation over OpenAI's Responses interface, whose turns are answered as a whole."""

    name: str = ""

    async def open(self, post: Post) -> None:
        """Make the conversation."""
        self.name = (await post("/v1/conversations", {})).json()["id"]

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it."""
        await post("/v1/responses", {"model": AGENT, "input": question, "conversation": self.name})


class StreamedConversationTalk(ConversationTalk):
    """A conversation over OpenAI's Responses interface, whose turns are streamed."""

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it. Raises Unfinished."""
        body = {"model": AGENT, "input": question, "conversation": self.name, "stream": True}
        answer = await post("/v1/responses", body, EVENTS)
        _check_end(answer.content, b"event: response.completed")


@dataclass(slots=True)
class PreviousResponseTalk:
    """Responses that each continue the one before; the first makes the session."""

    previous: str | None = None

    async def open(self, post: Post) -> None:
        """Leave it to the first turn."""
        del post

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it."""
        body = {"model": AGENT, "input": question, "previous_response_id": self.previous}
        self.previous = (await post("/v1/responses", body)).json()["id"]


@dataclass(slots=True)
class ChatTalk:
    """A session over OpenAI's chat completions, whose requests bring only their newest message."""

    session: str = ""

    async def open(self, post: Post) -> None:
        """Make the session."""
        self.session = (await post("/v1/sessions", {"agent": AGENT})).json()["id"]

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it."""
        messages = [{"role": "user", "content": question}]
        body = {"model": AGENT, "messages": messages, "metadata": {"session_id": self.session}}
        await post("/v1/chat/completions", body)


@dataclass(slots=True)
class AgUiTalk:
    """A thread over AG-UI. Its client sends all messages with each turn, as AG-UI's clients do."""

    name: str = ""
    messages: list[dict[str, str]] = field(default_factory=list)

    async def open(self, post: Post) -> None:
        """Leave it to the first turn."""
        del post
        self.name = str(uuid4())

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it. Raises Unfinished."""
        self.messages.append({"id": str(uuid4()), "role": "user", "content": question})
        body = {"threadId": self.name, "runId": str(uuid4()), "messages": self.messages}
        answer = await post(f"/ag-ui/{AGENT}", body, EVENTS)
        _check_end(answer.content, b'"outcome":{"type":"success"}')
        self.messages.append({"id": str(uuid4()), "role": "assistant", "content": "An answer."})


@dataclass(slots=True)
class AiSdkTalk:
    """A chat of the AI SDK. Its client sends all messages with each turn, as `useChat` does."""

    name: str = ""
    messages: list[dict[str, object]] = field(default_factory=list)

    async def open(self, post: Post) -> None:
        """Leave it to the first turn."""
        del post
        self.name = str(uuid4())

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it. Raises Unfinished."""
        self._add("user", question)
        body = {"id": self.name, "messages": self.messages, "trigger": "submit-message"}
        answer = await post(f"/ai-sdk/{AGENT}", body, EVENTS)
        _check_end(answer.content, b"data: [DONE]")
        self._add("assistant", "An answer.")

    def _add(self, role: str, text: str) -> None:
        self.messages.append({"id": str(uuid4()), "role": role, "parts": [{"type": "text", "text": text}]})


@dataclass(slots=True)
class LangGraphTalk:
    """A thread over LangGraph's interface, whose turns are answered as a whole."""

    name: str = ""

    async def open(self, post: Post) -> None:
        """Make the thread."""
        made = await post("/langgraph/threads", {"metadata": {"graph_id": AGENT}})
        self.name = made.json()["thread_id"]

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it."""
        await post(f"/langgraph/threads/{self.name}/runs/wait", self.body(question))

    def body(self, question: str) -> dict[str, object]:
        """Return the request for a run with the question."""
        return {"assistant_id": AGENT, "input": {"messages": [{"type": "human", "content": question}]}}


class StreamedLangGraphTalk(LangGraphTalk):
    """A thread over LangGraph's interface, whose turns are streamed."""

    async def ask(self, post: Post, question: str) -> None:
        """Take the next turn of it. Raises Unfinished."""
        body = {**self.body(question), "stream_mode": "messages-tuple"}
        answer = await post(f"/langgraph/threads/{self.name}/runs/stream", body, EVENTS)
        _check_end(answer.content, b"event: end")


@dataclass(frozen=True, slots=True)
class Dialect:
    """A way to ask for turns, and the one that it is compared with."""

    name: str
    make_talk: Callable[[], Talk]
    beside: str


DIALECTS = (
    Dialect("native", NativeTalk, "native"),
    Dialect("responses, conversation", ConversationTalk, "native"),
    Dialect("responses, previous_response_id", PreviousResponseTalk, "native"),
    Dialect("chat completions, session", ChatTalk, "native"),
    Dialect("native, streamed", StreamedNativeTalk, "native, streamed"),
    Dialect("responses, conversation, streamed", StreamedConversationTalk, "native, streamed"),
    Dialect("AG-UI", AgUiTalk, "native, streamed"),
    Dialect("AI SDK", AiSdkTalk, "native, streamed"),
    Dialect("LangGraph", LangGraphTalk, "native"),
    Dialect("LangGraph, streamed", StreamedLangGraphTalk, "native, streamed"),
)
"""All that are measured. A further interface is one more line."""


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if an aim is missed."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="dialects-") as name:
        sides = await _measured(Path(name), options)
    lines: list[Sequence[str]] = [("interface", *FIGURES)]
    lines += [_row(dialect, sides) for dialect in DIALECTS]
    print(f"{options.clients} clients, {options.rounds} rounds of {options.seconds:g} s; load {os.getloadavg()[0]:.1f}")
    print(aligned(lines))
    slow = [dialect.name for dialect in DIALECTS if _ratio(dialect, sides) < AIM_RATIO]
    print(f"\nUnder {AIM_RATIO:g} of the native interface: {'; '.join(slow)}" if slow else "\nEvery aim is reached.")
    return 1 if slow else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dialects", description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each interface")
    return parser.parse_args(arguments)


async def _measured(folder: Path, options: argparse.Namespace) -> dict[str, Side]:
    """Run the service, and return what each interface took, by its name."""
    write_agent(folder, AGENT)
    async with run_logged_postgres(folder) as (url, log), connected(url) as connection:
        environment = {"DATABASE_URL": url, "DEFAULT_LLM": f"openai:{MODEL}"}
        with run_service(folder, environment, module="benchmarks.instant_model") as service:
            return await _sides(await warmed_target(service, connection, log), options)


async def _sides(target: Target, options: argparse.Namespace) -> dict[str, Side]:
    """Warm each interface up, time all in turns, and count their statements."""
    presses = {
        dialect.name: partial(press, target.url, options.clients, talk=dialect.make_talk) for dialect in DIALECTS
    }
    timed: dict[str, list[tuple[Measured, Used]]] = {name: [] for name in presses}
    short = min(options.seconds, SHORT_SECONDS)
    for warm_up in presses.values():
        await warm_up(short)
    for number in range(options.rounds):
        for name in presses if number % 2 == 0 else reversed(presses):
            timed[name].append(await target.meter.timed(partial(presses[name], options.seconds)))
    sides: dict[str, Side] = {}
    for name, results in timed.items():
        counted = await target.meter.counted(partial(presses[name], short))
        cost = cost_of([used for _, used in results], counted, target.idle)
        sides[name] = Side(tuple(measured for measured, _ in results), cost)
    return sides


def _ratio(dialect: Dialect, sides: dict[str, Side]) -> float:
    """Return the median of the rounds' ratios of turns per second."""
    pairs = zip(sides[dialect.name].rounds, sides[dialect.beside].rounds, strict=True)
    return statistics.median(own.rate / native.rate for own, native in pairs)


def _row(dialect: Dialect, sides: dict[str, Side]) -> list[str]:
    side = sides[dialect.name]
    return [
        dialect.name,
        f"{side.median(lambda one: one.rate):.1f}",
        f"{_ratio(dialect, sides):.2f}",
        *(f"{side.milliseconds(percent):.0f}" for percent in (50, 95)),
        f"{side.cost.statements:.1f}",
        f"{side.cost.commits:.1f}",
        f"{side.cost.cpu_ms:.1f}",
    ]


def _check_end(stream: bytes, last: bytes) -> None:
    if last not in stream:
        raise Unfinished(stream[-500:].decode(errors="replace"))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
