"""What is still in the prompt of facts planted through a long conversation, after many compactions.

`python -m benchmarks.planted_facts [--turns 2000] [--seeds 10] [--limit 1500]`. Each seed makes a conversation, has it
summarised in 50 compactions by a model that loses each fact with probability 0.2 whenever it rewrites it, and looks for
every fact that lies before the cursor: in the narrative, in the ledger, in the whole prompt. `rolling` stands beside
`tiered`, both with a ledger, and beside `llm`: tiered without a ledger, all of the limit for the narrative. Then the
recognition of standing instructions on a list of labelled sentences.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from benchmarks.planted_conversation import LEAST_TURNS, FactKind, Planted, plant
from benchmarks.planted_memory import Memory, Variant
from benchmarks.planted_rules import read_labelled, recognition_lines
from benchmarks.planted_summariser import WINDOW_TOKENS, LossySummariser
from benchmarks.planted_table import Cost, Found, cost_lines, render_table
from benchmarks.planted_verdict import verdict_lines
from throughline.context.budget import make_budget
from throughline.context.context_input import ContextInput
from throughline.context.fit import fit_prompt
from throughline.context.measure import Count
from throughline.context.policy import ContextPolicy
from throughline.domain.message import NewMessage, Role, Source, text_of
from throughline.llm.counters import make_counter

COMPACTIONS = 50
CHECKPOINTS = (1, 10, 50)
SHOWN_AFTER = 6
"""So many messages after the cursor stand in the prompt that is searched for pins."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = _parse(arguments)
    began = time.monotonic()
    count = make_counter("tiktoken").count
    sentences = read_labelled()
    standing = [sentence.text for sentence in sentences if sentence.is_standing]
    found: list[Found] = []
    costs: list[Cost] = []
    for seed in range(1, options.seeds + 1):
        planted = plant(options.turns, random.Random(seed), standing, count)
        for variant in Variant:
            rows, cost = asyncio.run(measure(planted, variant, seed, options.limit, count))
            found.extend(rows)
            costs.append(cost)
    print(f"{options.turns:,} turns, {COMPACTIONS} compactions, {options.seeds} seeds, limit {options.limit} tokens\n")
    print(render_table(found))
    print("\n" + "\n".join((*cost_lines(costs), *recognition_lines(sentences), *verdict_lines(found))))
    print(f"({time.monotonic() - began:.0f} s)")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.planted_facts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--limit", type=int, default=1500, help="tokens a summary may have")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.turns < LEAST_TURNS:
        parser.error(f"--seeds is at least 1, --turns is at least {LEAST_TURNS}: else facts are all")
    return options


async def measure(
    planted: Planted, variant: Variant, seed: int, limit_tokens: int, count: Count
) -> tuple[list[Found], Cost]:
    """Compact one conversation 50 times; return what is found at the checkpoints, and the cost."""
    double = LossySummariser(planted.facts, random.Random(1000 + seed), count)
    memory = Memory(variant, limit_tokens, double, count)
    step = len(planted.messages) // COMPACTIONS // 2 * 2
    texts: list[str] = []
    found: list[Found] = []
    for number in range(1, COMPACTIONS + 1):
        await memory.compact(planted.messages[(number - 1) * step : number * step])
        texts.append(memory.rendered())
        if number in CHECKPOINTS:
            found.extend(look(planted, memory, seed, number))
    largest = max(count(text) for text in texts)
    cost = Cost(variant, double.calls, memory.unused_calls, double.tokens, stable_share(texts), largest)
    return found, cost


def look(planted: Planted, memory: Memory, seed: int, compactions: int) -> list[Found]:
    """Return, for each kind, how many of the facts before the cursor are still there."""
    texts = (memory.narrative(), memory.ledger_text(), prompt_text(planted, memory))
    rows = []
    for kind in FactKind:
        if kind is FactKind.WITHDRAWN:
            continue
        facts = [fact for fact in planted.facts if fact.kind is kind and fact.position <= memory.cursor]
        hits = [sum(fact.key in text for fact in facts) for text in texts]
        rows.append(Found(seed, memory.variant, compactions, kind, len(facts), *hits))
        if kind is FactKind.CORRECTION:
            wrong = [sum(fact.withdrawn in text and fact.key not in text for fact in facts) for text in texts]
            rows.append(Found(seed, memory.variant, compactions, FactKind.WITHDRAWN, len(facts), *wrong))
    return rows


def prompt_text(planted: Planted, memory: Memory) -> str:
    """Return all text of the prompt that the engine makes behind the cursor, with the pinned messages before it."""
    policy, cursor, summary = ContextPolicy(), memory.cursor, memory.rendered()
    fitted = fit_prompt(
        ContextInput(
            policy=policy,
            budget=make_budget(policy, WINDOW_TOKENS),
            factor=1.0,
            system_prompt="You are a helpful assistant.",
            tools_tokens=0,
            summary=summary,
            summary_tokens=memory.count(summary),
            summary_through_position=cursor,
            history=planted.messages[cursor : cursor + SHOWN_AFTER],
            own=(),
            user=NewMessage(Role.USER, "And now?", Source.API),
            count=memory.count,
            counter_name="benchmark",
            pinned=tuple(row for row in planted.messages[:cursor] if row.pinned),
        )
    )
    return "\n".join((fitted.prompt.system, *(text_of(message.content) for message in fitted.prompt.messages)))


def stable_share(texts: Sequence[str]) -> float:
    """Return the bytes that each text shares with the start of the one before, as a share of that one's."""
    pairs = [(before.encode(), after.encode()) for before, after in pairwise(texts)]
    return mean(_common(before, after) / max(len(before), 1) for before, after in pairs)


def _common(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


if __name__ == "__main__":
    main()
