"""Whether the prompt of a question holds the messages that answer it, and what is quoted to messages that ask nothing.

`PYTHONPATH=tests python -m benchmarks.quoted_sources` stores chats of a user and an assistant, BEAM's or a sample, as
sessions and indexes them. It sends their questions as turns to an agent with a small window and `recall: auto`, and
reads what the model double received. A source is shown if its whole text is there, or EXCERPT_CHARACTERS of it as a
quotation. That is done with a summary that tells nothing, without summaries in three ways, and offline for the users'
messages that BM25 finds. The turns of a chat follow each other, and what they add is not indexed.
"""

import argparse
import asyncio
import inspect
import itertools
import logging
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import structlog

from benchmarks.figures import aligned, connected, percentile
from benchmarks.processes import run_postgres
from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval import bm25_scores
from benchmarks.retrieval_data import Archive, Line, Meeting, Question
from benchmarks.retrieval_readers import Kind, read_kinds
from fakes.provider_double import SUMMARISER, Failure, ProviderDouble, ScriptStep, serve_double
from fakes.provider_double.counting import texts_of
from fakes.stage import Stage, agent_on, open_double_stage, turn_requests
from throughline.context.policy import Recall, Strategy
from throughline.context.view.placeholder_texts import TAG, undelimited
from throughline.db.connection.migrations import upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.basic_types import SessionId
from throughline.domain.events import HistoryQuoted
from throughline.domain.run import RunStatus
from throughline.llm.counters import make_counter
from throughline.ports.storage import TurnHistory

COUNTER = make_counter("tiktoken:cl100k_base")
EXCERPT_CHARACTERS = 200
RECENT_SHARE = 0.5
"""Share of the window that the messages behind a summary take: as after a compaction."""

SUMMARY = "They talked about all kinds of things."
SUMMARY_REQUESTS = 10_000
"""More than are ever made: a script of the double has an end."""

MOST_FOUND = 8
BM25 = f"{MOST_FOUND} users' messages by BM25"


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to make a long conversation fit: settings of the agent's context, and what its summary model answers."""

    name: str
    context: dict[str, object] = field(default_factory=dict)
    summary: ScriptStep = field(default_factory=lambda: ScriptStep(SUMMARY))
    is_summarised: bool = False


ARMS = (
    Arm("a summary that tells nothing", is_summarised=True),
    Arm("strategy: truncation", {"strategy": Strategy.TRUNCATION}),
    Arm("auto_summarize: false", {"auto_summarize": False}),
    Arm("a summary model that fails", summary=ScriptStep(failure=Failure.QUOTA)),
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is sent: the questions of the chats, and the small talk, which is divided among them."""

    chats: Sequence[Meeting]
    small_talk: Sequence[str]
    window: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was sent: which of its sources the prompt showed, and what was quoted, at which cost.

    `seconds` are those of the recall, None without one. `is_given_up` tells that it took too long, and quoted nothing.
    """

    ability: str
    shown: tuple[bool, ...]
    tokens: int
    seconds: float | None = None
    is_given_up: bool = False


@dataclass(slots=True)
class Figures:
    """All questions of an arm, and of its small talk whether anything was quoted."""

    asked: list[Asked] = field(default_factory=list)
    small_talk: list[bool] = field(default_factory=list)


class TimedHistory:
    """Hands on calls of the history's methods and adds up their seconds."""

    def __init__(self, history: object) -> None:
        """Measure the calls of this history."""
        self._history = history
        self.seconds, self.is_given_up = 0.0, False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever methods the history has
        """Return the method, which is measured if it is awaited."""
        method = getattr(self._history, name)
        return partial(self._call, method) if inspect.iscoroutinefunction(method) else method

    async def _call(self, method: object, *arguments: object, **named: object) -> object:
        began = time.perf_counter()
        try:
            return await method(*arguments, **named)  # type: ignore[operator]  # a method that is awaited
        except asyncio.CancelledError:
            self.is_given_up = True
            raise
        finally:
            self.seconds += time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Talk:
    """A stage whose session is a stored chat, its double, and the time that its recall takes."""

    stage: Stage
    double: ProviderDouble
    history: TimedHistory

    async def ask(self, text: str) -> tuple[list[str], HistoryQuoted | None, float]:
        """Play a turn; return the texts of its prompt, what it quoted, and the seconds of the recall."""
        self.double.requests.clear()
        self.history.seconds, self.history.is_given_up = 0.0, False
        run = await self.stage.turn(text)
        if run.status is not RunStatus.SUCCEEDED:
            raise RuntimeError(f"The turn ended with {run.error}: {text}")
        quoted = [event.event for event in await self.stage.events(run) if isinstance(event.event, HistoryQuoted)]
        prompt = turn_requests(self.double)[-1].prompt
        texts = [text for message in prompt for text in texts_of(message)]
        return texts, quoted[0] if quoted else None, self.history.seconds


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parse(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    kinds = read_kinds(options.data or [SAMPLE / "beam"])
    chats = kinds[Kind.ASSISTANT].of(options.half)[: options.chats] if Kind.ASSISTANT in kinds else ()
    if not chats:
        sys.exit("There are no chats in the folders of --data.")
    small_talk = (SAMPLE / "small_talk.txt").read_text("utf-8").splitlines()
    inputs = Inputs(chats, small_talk, options.window)
    by_arm: dict[str, Figures] = {}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quoted-sources-"))
        url = await stack.enter_async_context(run_postgres(Path(folder)))
        await upgrade(url)
        database = await Database.open(DatabaseConfig(url=url))
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(connected(url))
        archive = Archive(database, connection, await database.users.get_or_create("anna"))
        double = stack.enter_context(serve_double(ProviderDouble()))
        for arm in ARMS:
            by_arm[arm.name] = await measure(archive, double, arm, inputs)
    by_arm[BM25] = Figures([asked for chat in chats for asked in found_by_bm25(chat, options.window)])
    print(f"{len(chats)} chats, window {options.window:,}\n\n{table(by_arm)}\n\n{table_of_abilities(by_arm)}")
    return 0


async def measure(archive: Archive, double: ProviderDouble, arm: Arm, inputs: Inputs) -> Figures:
    """Return the figures of an arm. The archive's user is the one of stages, `anna`."""
    window, chats = inputs.window, inputs.chats
    double.reset()
    double.script(*[arm.summary] * SUMMARY_REQUESTS, line=SUMMARISER)
    context = {"window": window, "recall": Recall.AUTO, **arm.context}
    agent = agent_on(double, f"openai:double-{window}-cl100k", **context)
    figures = Figures()
    async with open_double_stage(archive.database, agent) as stage:
        history = TimedHistory(stage.dependencies.history)
        stage.dependencies = replace(stage.dependencies, history=cast("TurnHistory", history))
        talk = Talk(stage, double, history)
        for number, chat in enumerate(chats):
            session_id = await archive.fill_session(chat.lines, COUNTER)
            await archive.index(session_id)
            if arm.is_summarised:
                await _summarise(archive, session_id, first_recent(chat.lines, int(RECENT_SHARE * window)))
            await archive.vacuum()
            stage.session = await archive.database.sessions.get(archive.owner_id, session_id)
            figures.asked += [await _ask(talk, chat, question) for question in chat.questions]
            for text in inputs.small_talk[number :: len(chats)]:
                _, quoted, _ = await talk.ask(text)
                figures.small_talk.append(quoted is not None)
    return figures


async def _ask(talk: Talk, chat: Meeting, question: Question) -> Asked:
    texts, quoted, seconds = await talk.ask(question.text)
    shown = tuple(is_shown(chat.lines[place].text, place + 1, texts) for place in places_of(question))
    return Asked(question.ability, shown, quoted.tokens if quoted else 0, seconds or None, talk.history.is_given_up)


async def _summarise(archive: Archive, session_id: SessionId, through: int) -> None:
    """Let the session have a summary of its first `through` messages."""
    await archive.connection.execute(
        "update sessions s set conversation_summary = $3, summary_tokens = $4, summary_version = 1, "
        "summary_through_position = m.position, summary_through_id = m.id "
        "from messages m where s.id = $1 and m.session_id = s.id and m.position = $2",
        session_id,
        through,
        SUMMARY,
        COUNTER.count(SUMMARY),
    )


def first_recent(lines: Sequence[Line], room_tokens: int) -> int:
    """Return the place, from 0, of the first of the user's lines from which all later ones fit into the room."""
    sizes = itertools.accumulate(COUNTER.count(line.text) for line in reversed(lines))
    fitting = sum(size <= room_tokens for size in sizes)
    starts = range(len(lines) - fitting, len(lines))
    return next((place for place in starts if lines[place].role == "user"), len(lines))


def places_of(question: Question) -> list[int]:
    """Return the places, from 0, of the question's sources."""
    return [place for first, last in question.spans for place in range(first, last + 1)]


_HEAD = re.compile(r"^\[#(\d+), [^\]\n]*\] ", re.MULTILINE)


def is_shown(source: str, position: int, texts: Sequence[str]) -> bool:
    """Return whether the texts of a prompt hold the source, or an excerpt of it as a quotation of that position."""
    return any(source in text for text in texts) or any(
        _shared_characters(source, quotation) >= min(EXCERPT_CHARACTERS, len(_folded(source)))
        for text in texts
        for number, quotation in _quotations(text)
        if number == position
    )


def _quotations(text: str) -> Iterator[tuple[int, str]]:
    _, *parts = _HEAD.split(undelimited(TAG, text))
    yield from zip(map(int, parts[::2]), parts[1::2], strict=True)


def _shared_characters(source: str, quotation: str) -> int:
    """Return how long the pieces of the quotation are that stand in the source."""
    return sum(len(piece.strip()) for piece in _folded(quotation).split("…") if piece.strip() in _folded(source))


def _folded(text: str) -> str:
    return " ".join(text.split())


def found_by_bm25(chat: Meeting, window: int) -> Iterator[Asked]:
    """Yield the questions as if a prompt had the recent messages and those of the user that BM25 finds best, whole."""
    is_user = np.array([line.role == "user" for line in chat.lines])
    recent = range(first_recent(chat.lines, int(RECENT_SHARE * window)), len(chat.lines))
    for question, scores in zip(chat.questions, bm25_scores(chat, lambda line: line.searched), strict=True):
        ranked = np.argsort(-np.where(is_user, scores, 0.0), kind="stable")[:MOST_FOUND]
        found = {int(place) for place in ranked if is_user[place] and scores[place] > 0} - set(recent)
        shown = tuple(place in found or place in recent for place in places_of(question))
        yield Asked(question.ability, shown, sum(COUNTER.count(chat.lines[place].text) for place in found))


def table(by_arm: dict[str, Figures]) -> str:
    """Return a Markdown table with a row for each arm; tokens are means of the questions with quotations."""
    heads = [
        "",
        "questions",
        "a source shown",
        "all shown",
        "quoted",
        "tokens",
        "median ms",
        "p99 ms",
        "given up",
        "to small talk",
    ]
    return aligned([heads, *(_row(name, figures) for name, figures in by_arm.items())])


def _row(name: str, figures: Figures) -> list[str]:
    seconds = [asked.seconds for asked in figures.asked if asked.seconds is not None]
    tokens = [asked.tokens for asked in figures.asked if asked.tokens]
    return [
        name,
        str(len(figures.asked)),
        _share([any(asked.shown) for asked in figures.asked]),
        _share([all(asked.shown) for asked in figures.asked]),
        _share([asked.tokens > 0 for asked in figures.asked]),
        f"{statistics.fmean(tokens or [0]):,.0f}",
        *(f"{1000 * percentile(seconds, percent):.1f}" if seconds else "-" for percent in (50, 99)),
        _share([asked.is_given_up for asked in figures.asked]),
        _share(figures.small_talk, digits=1),
    ]


def table_of_abilities(by_arm: dict[str, Figures]) -> str:
    """Return a Markdown table: for each ability and arm the questions with a source shown and with all."""
    rows = [["a source shown / all", "questions", *by_arm]]
    for ability in dict.fromkeys(asked.ability for figures in by_arm.values() for asked in figures.asked):
        of_arms = [[asked.shown for asked in figures.asked if asked.ability == ability] for figures in by_arm.values()]
        cells = [f"{_share([*map(any, shown)])} / {_share([*map(all, shown)])}" for shown in of_arms]
        rows.append([ability.replace("_", " "), str(len(of_arms[0])), *cells])
    return aligned(rows)


def _share(those: Sequence[bool], digits: int = 0) -> str:
    return f"{statistics.fmean(those):.{digits}%}" if those else "-"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quoted_sources", description=__doc__)
    parser.add_argument("--data", type=Path, action="append", default=[], help="folder with BEAM's chats, one or more")
    parser.add_argument("--window", type=int, default=16_000, help="the window of the agent's model in tokens")
    parser.add_argument("--half", choices=("tuned", "reported", "all"), default="all", help="chats to measure on")
    parser.add_argument("--chats", type=int, help="measure on so many chats only")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
