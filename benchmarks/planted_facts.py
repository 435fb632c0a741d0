"""What the prompt still holds of facts that users stated in a long conversation, after many compactions.

Each seed makes a conversation of one of the kinds in `data/planted`, in turn, and has it summarised in 50 compactions
by a model that loses facts and keeps small talk (`planted_summariser`). Then every fact that lies before the cursor and
still holds is looked for in the prompt, every value that was taken back, and what says that one of two facts which hold
side by side was replaced.

By default with a summary of `--limit` tokens, and with what the service allows in windows of 32,000 and 128,000;
`--window` takes one of these, 0 for the limit.
"""

import argparse
import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import mean

import structlog

from benchmarks.figures import aligned
from benchmarks.planted_conversation import (
    LEAST_TURNS,
    SIBLING,
    WITHDRAWAL,
    Fact,
    Planted,
    lines_of,
    plant,
    read_scripts,
    stands,
)
from benchmarks.planted_memory import Memory, Variant
from benchmarks.planted_summariser import WINDOW_TOKENS, LossySummariser
from throughline.context.budget import make_budget, summary_limit
from throughline.context.policy import ContextPolicy
from throughline.llm.counters import make_counter

COMPACTIONS = 50
CHECKPOINTS = (1, 10, 50)
WINDOWS = (0, 32_000, 128_000)
PROCESSES = 2
SHOWN_AFTER = 6
"""So many messages after the cursor stand in the prompt that is searched."""

KEPT_HEADINGS = ("exact facts", "kept facts")
"""Below such a line nothing is the model's own text."""

ALL, TRUE = "all facts", "true, shown as replaced"
REPLACED = ", replaced by "
OLD_MARKS = ("] earlier", REPLACED, "; later: ", "→", "->", "~~")
"""Say in any language that what stands beside them no longer holds."""


@dataclass(slots=True)
class Result:
    """One conversation, one variant.

    `found` says by checkpoint and heading of each fact before the cursor whether it is there; under "old, …", of what
    was taken back whether it is shown as current.
    """

    kind: str
    variant: Variant
    window_tokens: int
    limit_tokens: int
    found: dict[tuple[int, str], list[bool]] = field(default_factory=dict)
    used_tokens: int = 0
    calls: int = 0
    paid_tokens: int = 0
    stable_share: float = 0.0


COSTS: tuple[tuple[str, str, Callable[[Result], float]], ...] = (
    ("summary tokens at the end", "{:,.0f}", lambda result: result.used_tokens),
    ("of its limit", "{:.0%}", lambda result: result.used_tokens / result.limit_tokens),
    ("calls", "{:.0f}", lambda result: result.calls),
    ("tokens paid", "{:,.0f}", lambda result: result.paid_tokens),
    ("bytes as at the start of the one before", "{:.0%}", lambda result: result.stable_share),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options, began = _parse(arguments), time.monotonic()
    run, seeds = partial(run_seed, options), range(1, options.seeds + 1)
    if options.seeds == 1:
        results = run(1)
    else:
        with ProcessPoolExecutor(PROCESSES) as pool:
            results = [result for of_seed in pool.map(run, seeds) for result in of_seed]
    kinds = ", ".join(sorted({result.kind for result in results}))
    print(f"{options.turns:,} turns, {COMPACTIONS} compactions, {options.seeds} seeds: {kinds}")
    for window in options.windows:
        of_window = [result for result in results if result.window_tokens == window]
        title = f"window of {window:,}" if window else "no window"
        print(f"\nA summary of at most {of_window[0].limit_tokens:,} tokens ({title})\n\n{table(of_window)}")
    print(f"\n({time.monotonic() - began:.0f} s)")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted_facts", description=__doc__)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--window", type=int, choices=WINDOWS)
    parser.add_argument("--limit", type=int, default=1500, help="tokens a summary may have where no window says it")
    parser.add_argument("--kinds", default="", help="kinds of conversation, with commas between them; all by default")
    parser.add_argument("--held-out", action="store_true", help="the kinds that the engine was not built with")
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.turns < LEAST_TURNS:
        parser.error(f"--seeds is at least 1, --turns is at least {LEAST_TURNS}: else facts are all")
    scripts = read_scripts(held_out=options.held_out)
    wanted = options.kinds.split(",") if options.kinds else [script.name for script in scripts]
    options.scripts = [script for script in scripts if script.name in wanted]
    if len(options.scripts) < len(wanted):
        parser.error(f"--kinds: there are {', '.join(script.name for script in scripts)}")
    options.windows = WINDOWS if options.window is None else (options.window,)
    return options


def run_seed(options: argparse.Namespace, seed: int) -> list[Result]:
    """Return what one conversation gives in all windows and variants."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    count = make_counter("tiktoken").count
    planted = plant(options.turns, seed, options.scripts[seed % len(options.scripts)], count)
    results = []
    for window in options.windows:
        policy = ContextPolicy()
        limit = summary_limit(policy.summary, make_budget(policy, window)) if window else options.limit
        for variant in Variant:
            double = LossySummariser(planted, random.Random(seed), count, context_limit=window or WINDOW_TOKENS)
            memory = Memory(variant, limit, double, count)
            results.append(asyncio.run(measure(planted, memory, Result(planted.script.name, variant, window, limit))))
    return results


async def measure(planted: Planted, memory: Memory, result: Result) -> Result:
    """Compact one conversation 50 times; note what is found at the checkpoints, and the cost."""
    step = len(planted.messages) // COMPACTIONS // 2 * 2
    texts: list[str] = []
    for number in range(1, COMPACTIONS + 1):
        await memory.compact(planted.messages[(number - 1) * step : number * step])
        texts.append(memory.rendered())
        if number in CHECKPOINTS:
            look(planted, memory, number, result)
    result.used_tokens = memory.count(texts[-1])
    result.calls, result.paid_tokens = memory.summariser.calls, memory.summariser.tokens
    result.stable_share = stable_share(texts)
    return result


def look(planted: Planted, memory: Memory, compactions: int, result: Result) -> None:
    """Count the facts before the cursor that hold, which of them the prompt has, and which old values it shows."""
    cursor = memory.cursor
    past = {fact.position: fact for fact in planted.facts if fact.position <= cursor}
    gone = {fact.withdraws for fact in past.values()}
    pinned = tuple(row for row in planted.messages[:cursor] if row.pinned)
    prompt = lines_of(memory.prompt_text(planted.messages[cursor : cursor + SHOWN_AFTER], pinned))
    summary = lines_of(memory.prompt_text())
    old_words = old_pattern(planted.script.language["old_words"])
    for fact in past.values():
        if fact.withdraws:
            is_shown = shows_as_current(summary, past[fact.withdraws], fact, old_words)
            result.found.setdefault((compactions, f"old, {fact.heading}"), []).append(is_shown)
        if fact.heading == SIBLING:
            is_replaced = any(REPLACED in line and stands(fact.needles, [line]) for line in summary)
            result.found.setdefault((compactions, TRUE), []).append(is_replaced)
        if fact.position not in gone and fact.heading != WITHDRAWAL:
            for heading in (ALL, fact.heading):
                result.found.setdefault((compactions, heading), []).append(stands(fact.needles, prompt))


def old_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Return what finds a word that says that something is old; Chinese ones also inside a word."""
    whole = "|".join(re.escape(word.casefold()) for word in words if word[0] < "\u2e80")
    inside = "|".join(re.escape(word) for word in (*OLD_MARKS, *(word for word in words if word[0] >= "\u2e80")))
    return re.compile(rf"(?<!\w)(?:{whole or '(?!)'})(?!\w)|n['’]t\b|{inside}")


def shows_as_current(lines: Sequence[str], old: Fact, new: Fact, old_words: re.Pattern[str]) -> bool:
    """Whether a line has the old value, and neither the new one nor a word that says it is old.

    In the narrative, which tells what was said in its order, it may have been so at its time: there it counts only
    where the later statement is not told further down.
    """
    value = "" if new.heading == WITHDRAWAL else lines_of(new.value)[0]
    kept_from = next((at for at, line in enumerate(lines) if line.startswith(KEPT_HEADINGS)), len(lines))
    is_old = [not (value and value in line) and not old_words.search(line) for line in lines]
    shown = [at for at, line in enumerate(lines) if stands(old.needles, [line]) and is_old[at]]
    return any(at >= kept_from or not tells(new, lines[at + 1 :]) for at in shown)


def tells(new: Fact, lines: Sequence[str]) -> bool:
    """Whether one of the lines has the later statement."""
    sentence = lines_of(new.sentence)[0]
    return stands(new.needles, lines) or any(sentence in line for line in lines)


def stable_share(texts: Sequence[str]) -> float:
    """Return the bytes that each text shares with the start of the one before, as a share of that one's."""
    pairs = [(before.encode(), after.encode()) for before, after in pairwise(texts)]
    return mean(_common(before, after) / max(len(before), 1) for before, after in pairs)


def _common(one: bytes, other: bytes) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table of shares over all conversations, the variants side by side."""
    of = {variant: [result for result in results if result.variant is variant] for variant in Variant}
    keys = {key for result in results for key in result.found if key[0] == max(CHECKPOINTS) or key[1] == ALL}
    lines = [("after", "", "planted", *(variant.name.lower().replace("_", " ") for variant in Variant))]
    for at, heading in sorted(keys, key=lambda key: (key[1] != ALL, key[1].startswith(("old", "true")), key)):
        found = [[there for result in of[variant] for there in result.found.get((at, heading), ())] for variant in of]
        lines.append((str(at), heading, str(max(map(len, found))), *(f"{mean(there):.0%}" for there in found)))
    for title, form, figure in COSTS:
        lines.append(("", title, "", *(form.format(mean(map(figure, of[variant]))) for variant in of)))
    return aligned(lines)


if __name__ == "__main__":
    main()
