"""What `context.recall: auto` puts into the prompt when a user asks for facts of long ago, and what it costs.

Each seed makes a conversation of one of the kinds in `data/planted` and has it summarised as `benchmarks.planted_facts`
does. The messages are stored and indexed. Then every fact that still holds and lies before the cursor is asked for by
its subject alone, without any tool call, and looked for in the summary and in the quotations. Beside that, the
conversation's own small talk is sent again: a quotation there is useless.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.figures import aligned, connected, percentile
from benchmarks.planted_conversation import WITHDRAWAL, Planted, lines_of, plant, read_scripts, stands
from benchmarks.planted_facts import COMPACTIONS
from benchmarks.planted_memory import Memory, Variant
from benchmarks.planted_summariser import LossySummariser
from benchmarks.processes import run_postgres
from benchmarks.retrieval_data import Archive, Line
from throughline.context.budget import make_budget, summary_limit
from throughline.context.policy import ContextPolicy
from throughline.context.questions import questions_of
from throughline.context.quoted_history import (
    FOUND,
    MOST_QUOTED,
    WHOLE_CHARACTERS,
    WHOLE_QUOTED,
    Quotation,
    choose_quotations,
    merge_quotations,
)
from throughline.db.connection.migrations import upgrade
from throughline.db.database import Database, DatabaseConfig
from throughline.domain.basic_types import SessionId
from throughline.domain.message import Message, Role, searched_text
from throughline.domain.recall import HistoryFilter, HistoryQuery, Place
from throughline.llm.counters import make_counter

WINDOW = 32_000
SMALL_TALK = 400
"""Messages of each conversation that are sent again."""

ASKED = {
    "en": "What did we say about the {}?",
    "de": "Was haben wir zu {} gesagt?",
    "es": "¿Qué dijimos sobre {}?",
    "fr": "Qu'avons-nous dit sur {} ?",
    "zh": "关于{}我们说过什么？",
}


@dataclass(slots=True)
class Figures:
    """Of all facts asked for: whether the summary has each, and whether summary or quotations do.

    `answered` says of each asked fact with quotations whether they hold it. `seconds` is the time of each search.
    """

    summary: list[bool] = field(default_factory=list)
    quoted: list[bool] = field(default_factory=list)
    answered: list[bool] = field(default_factory=list)
    small_talk: list[bool] = field(default_factory=list)
    searched: list[bool] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


async def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = _parse(arguments)
    scripts, count = read_scripts(held_out=options.held_out), make_counter("tiktoken").count
    by_kind: dict[str, Figures] = {}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="planted-recall-"))
        url = await stack.enter_async_context(run_postgres(Path(folder)))
        await upgrade(url)
        database = await Database.open(DatabaseConfig(url=url, pool_size=2))
        stack.push_async_callback(database.close)
        connection = await stack.enter_async_context(connected(url))
        archive = Archive(database, connection, await database.users.get_or_create("planted"))
        for seed in range(1, options.seeds + 1):
            planted = plant(options.turns, seed, scripts[seed % len(scripts)], count)
            memory = await _summarised(planted, seed)
            figures = by_kind.setdefault(planted.script.name, Figures())
            await _measure(archive, planted, memory, figures)
    print(f"{options.turns:,} turns, {options.seeds} seeds, window {WINDOW:,}\n\n{table(by_kind)}")
    return 0


async def _summarised(planted: Planted, seed: int) -> Memory:
    """Return the shipped memory after all compactions."""
    count, policy = make_counter("tiktoken").count, ContextPolicy()
    double = LossySummariser(planted, random.Random(seed), count, context_limit=WINDOW)
    memory = Memory(Variant.TIERED, summary_limit(policy.summary, make_budget(policy, WINDOW)), double, count)
    step = len(planted.messages) // COMPACTIONS // 2 * 2
    for number in range(1, COMPACTIONS + 1):
        await memory.compact(planted.messages[(number - 1) * step : number * step])
    return memory


async def _measure(archive: Archive, planted: Planted, memory: Memory, figures: Figures) -> None:
    summarised = Place(await _stored(archive, planted.messages, memory.cursor), memory.cursor)
    summary, gone = lines_of(memory.prompt_text()), {fact.withdraws for fact in planted.facts}
    form = ASKED[planted.script.said["language"]]
    for fact in planted.facts:
        if fact.position > memory.cursor or fact.position in gone or fact.heading == WITHDRAWAL:
            continue
        quotations = await _recalled(archive, summarised, form.format(fact.subject), figures)
        lines = [line for found in quotations for line in lines_of(found.text)]
        is_quoted, is_kept = stands(fact.needles, lines), stands(fact.needles, summary)
        figures.summary.append(is_kept)
        figures.quoted.append(is_kept or is_quoted)
        figures.answered += [is_quoted] if quotations else []
    facts = {fact.position for fact in planted.facts}
    talk = [row for row in planted.messages if row.role is Role.USER and row.position not in facts]
    for row in random.Random(1).sample(talk, min(SMALL_TALK, len(talk))):
        text = searched_text(row)
        figures.searched.append(bool(questions_of(text)))
        quotations = await _recalled(archive, summarised, text, figures, apart_from=row.position)
        figures.small_talk.append(bool(quotations))


async def _recalled(
    archive: Archive, summarised: Place, text: str, figures: Figures, apart_from: int = 0
) -> tuple[Quotation, ...]:
    """Return what a turn with this message would quote; the message itself, where it was sent before, is no answer."""
    questions = questions_of(text)
    if not questions:
        return ()
    query = HistoryQuery(
        "",
        FOUND,
        HistoryFilter(before=summarised.position + 1),
        is_before_turn=True,
        is_plain=True,
        whole_characters=WHOLE_CHARACTERS,
        whole_hit_count=WHOLE_QUOTED,
    )
    chosen = []
    began = time.perf_counter()
    for question in questions:
        found = await archive.database.history.search(
            archive.owner_id, summarised.session_id, replace(query, text=question)
        )
        hits = tuple(hit for hit in found.hits if hit.message.position != apart_from)
        chosen.append(choose_quotations(replace(found, hits=hits), text))
    figures.seconds.append(time.perf_counter() - began)
    quotations = merge_quotations(chosen)[:MOST_QUOTED]
    count = make_counter("tiktoken").count
    figures.tokens.append(sum(count(quotation.text) for quotation in quotations))
    return quotations


async def _stored(archive: Archive, messages: Sequence[Message], cursor: int) -> SessionId:
    session_id = await archive.fill_session(_line(message) for message in messages)
    await archive.index(session_id)
    await archive.connection.execute(
        "update sessions set summary_through_position = $2, summary_through_id = (select id from messages where "
        "session_id = $1 and position = $2) where id = $1",
        session_id,
        cursor,
    )
    await archive.vacuum()
    return session_id


def _line(message: Message) -> Line:
    return Line(message.author or "", searched_text(message), message.created_at, message.role.value)


def table(by_kind: dict[str, Figures]) -> str:
    """Return a Markdown table with a row for each kind of conversation, and one for all."""
    heads = ["", "facts", "in the summary", "with auto", "useless to questions", "to small talk", "asked", "tokens"]
    rows = [_row(kind, [figures]) for kind, figures in by_kind.items()]
    return aligned([[*heads, "median ms", "p99 ms"], *rows, _row("all", by_kind.values())])


def _row(name: str, of: Iterable[Figures]) -> list[str]:
    figures = list(of)

    def share(name: str) -> str:
        return f"{statistics.fmean(there for each in figures for there in getattr(each, name)):.0%}"

    seconds = [taken for each in figures for taken in each.seconds]
    tokens = [number for each in figures for number in each.tokens if number]
    wrong = [not there for each in figures for there in each.answered]
    return [
        name,
        str(sum(len(each.summary) for each in figures)),
        share("summary"),
        share("quoted"),
        f"{statistics.fmean(wrong):.0%}",
        share("small_talk"),
        share("searched"),
        f"{statistics.fmean(tokens):.0f}",
        *(f"{1000 * percentile(seconds, percent):.1f}" for percent in (50, 99)),
    ]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_recall", description=__doc__)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--held-out", action="store_true", help="the kinds that the engine was not built with")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
