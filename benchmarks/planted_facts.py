"""What is still in the prompt of facts planted through a long conversation, after many compactions.

`python -m benchmarks.planted_facts [--turns 2000] [--seeds 3] [--limit 1500]`. Each seed makes a conversation, has it
summarised in 50 compactions by a summariser that loses each fact with probability 0.2 whenever it rewrites it, and
looks for every fact that lies before the cursor: in the narrative, in the ledger, in both together; `rolling` beside
`tiered`. Then the recognition of standing instructions on a list of labelled sentences.
"""

import argparse
import random
import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from app.context.budget import make_budget
from app.context.context_input import ContextInput
from app.context.fit import fit_prompt
from app.context.measure import Count
from app.context.policy import ContextPolicy, SummaryShape
from app.domain.message import NewMessage, Role, Source, text_of
from app.llm.counters import make_counter
from benchmarks.planted_conversation import FactKind, Planted, plant
from benchmarks.planted_rules import RuleWatch, read_labelled, recognition_lines
from benchmarks.planted_summariser import LossySummariser, Memory
from benchmarks.planted_table import Cost, Found, Rules, cost_lines, render_table, rule_lines, verdict

COMPACTIONS = 50
CHECKPOINTS = (1, 10, 50)
WINDOW_TOKENS = 16_384
SHOWN_AFTER = 6
"""So many messages after the cursor stand in the prompt that is searched for pins."""

SHAPES = (SummaryShape.ROLLING, SummaryShape.TIERED)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=1500, help="tokens a summary may have")
    parser.add_argument("--load", type=int, default=1, help="multiplies the number of planted facts")
    options = parser.parse_args()
    began = time.monotonic()
    count = make_counter("tiktoken").count
    sentences = read_labelled()
    found: list[Found] = []
    costs: list[Cost] = []
    rules: list[Rules] = []
    for seed in range(1, options.seeds + 1):
        standing = [sentence.text for sentence in sentences if sentence.is_standing]
        planted = plant(options.turns, random.Random(seed), standing, count, options.load)
        for shape in SHAPES:
            rows, cost, kept = measure(planted, shape, seed, options.limit, count)
            found.extend(rows)
            costs.append(cost)
            rules.append(kept)
    print(f"{options.turns:,} turns, {COMPACTIONS} compactions, {options.seeds} seeds, limit {options.limit} tokens\n")
    print(render_table(found))
    lines = (*cost_lines(costs), *rule_lines(rules, options.limit), *recognition_lines(sentences), verdict(found))
    print("\n" + "\n".join(lines))
    print(f"({time.monotonic() - began:.0f} s)")


def measure(
    planted: Planted, shape: SummaryShape, seed: int, limit_tokens: int, count: Count
) -> tuple[list[Found], Cost, Rules]:
    """Compact one conversation 50 times; return what is found at the checkpoints, the cost, the instructions kept."""
    double = LossySummariser(planted.facts, random.Random(1000 + seed), count)
    memory = Memory(shape, limit_tokens, double, count)
    rules = RuleWatch(planted, memory)
    step = len(planted.messages) // COMPACTIONS // 2 * 2
    texts: list[str] = []
    found: list[Found] = []
    for number in range(1, COMPACTIONS + 1):
        memory.compact(planted.messages[(number - 1) * step : number * step])
        texts.append(memory.rendered())
        rules.look(number * step)
        if number in CHECKPOINTS:
            found.extend(look(planted, memory, seed, number, number * step))
    cost = Cost(shape, double.calls, double.tokens, stable_share(texts), max(count(text) for text in texts))
    return found, cost, rules.result()


def look(planted: Planted, memory: Memory, seed: int, compactions: int, cursor: int) -> list[Found]:
    """Return, for each kind, how many of the facts before the cursor are still there."""
    narrative, ledger = memory.narrative(), memory.ledger_text()
    prompt = prompt_text(planted, memory, cursor)
    rows = []
    for kind in FactKind:
        keys = [fact.key for fact in planted.facts if fact.kind is kind and fact.position <= cursor]
        hits = [sum(key in text for key in keys) for text in (narrative, ledger, prompt)]
        rows.append(Found(seed, memory.shape, compactions, kind, len(keys), *hits))
    return rows


def prompt_text(planted: Planted, memory: Memory, cursor: int) -> str:
    """Return all text of the prompt that the engine makes behind this cursor, with the pinned messages before it."""
    policy = ContextPolicy()
    after = planted.messages[cursor : cursor + SHOWN_AFTER]
    summary = memory.rendered()
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
            history=after,
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
    return mean(_common(before, after) / len(before) for before, after in pairs)


def _common(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


if __name__ == "__main__":
    main()
