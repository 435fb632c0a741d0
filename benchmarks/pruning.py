"""What pruning saves: the prompts of recorded agents' runs with old tool outputs shown as stubs, and without.

`python -m benchmarks.pruning [--data FOLDER] [--datasets …] [--windows 8k,32k]`. Recorded runs are chained into one
session of at least `WINDOWS_TO_FILL` windows, and each model call's prompt is made by the engine, as the service makes
it; a summary is a text of full size, written at once. Printed beside each other: the prompts' tokens in all, what of
them a provider's cache would not have had (nothing before the first byte that differs from the call before), how often
something was pruned and summarised. Every prompt must be one that the recorded answer could follow: each call has its
result right after it, and the newest outputs stand there as they were stored. Exits with 1 where one is not.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.planner_input import stored_message
from benchmarks.replay_check import said_in
from benchmarks.replay_data import Dataset, chain
from benchmarks.replay_readers import load_datasets
from throughline.context.budget import make_budget, summary_limit
from throughline.context.context_input import ContextInput
from throughline.context.fit import FittedPrompt, fit_view
from throughline.context.plan import in_force, plan_context
from throughline.context.policy import ContextPolicy, PrunePolicy
from throughline.context.recall_hints import RECALL_TOOLS, hints_for
from throughline.context.reopen import kept_state, reopen
from throughline.context.repair import is_valid
from throughline.context.view import View
from throughline.context.view_state import NEW_VIEW, ViewState
from throughline.domain.message import Message, Role
from throughline.domain.prompt import PromptMessage
from throughline.llm.counters import make_counter

SAMPLE = Path(__file__).parent / "data"
DATASETS = ("tau-bench", "swe-agent-demos")
WINDOWS = ("8k", "32k", "128k")
WINDOWS_TO_FILL = 3
NEVER = 1_000_000
"""More outputs than a session has: with so many kept, nothing is pruned."""

ON = ContextPolicy(max_messages_before_summary=NEVER, max_tokens_before_summary=10**9)
OFF = replace(ON, prune=PrunePolicy(keep_last=NEVER, keep_last_aggressive=NEVER))


@dataclass(slots=True)
class Played:
    """What a session's prompts came to. Tokens are our counts, `uncached_tokens` those of what had not been sent."""

    calls: int = 0
    tokens: int = 0
    uncached_tokens: int = 0
    stages: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    sent: tuple[str, tuple[PromptMessage, ...]] = ("", ())


class Session:
    """One session of recorded turns under a policy."""

    def __init__(self, dataset: Dataset, window_tokens: int, policy: ContextPolicy) -> None:
        """Begin with nothing said."""
        self.counter = make_counter("tiktoken")
        self.policy, self.budget = policy, make_budget(policy, window_tokens)
        self.system_prompt = dataset.system_prompt
        self.rows: list[Message] = []
        self.own_from = 0
        self.cursor, self.summary = 0, ""
        self.state: ViewState = NEW_VIEW
        self.played = Played()

    def call(self) -> None:
        """Make the prompt of the next model call, and judge it."""
        plan = plan_context(self._input())
        view = plan.view
        self.played.stages.update(plan.fired)
        if plan.decision.to_summarise:
            self.played.stages["summarised"] += 1
            self.cursor, self.summary = plan.decision.to_summarise[-1].position, self._summary()
            view = reopen(in_force(replace(self._input(), view_state=plan.view_state)))
        fitted = fit_view(view)
        self.played.stages.update(fitted.notes)
        self.state = kept_state(fitted.view)
        self._judge(fitted)

    def outputs_kept(self, state: ViewState) -> int:
        """Return how many of the newest outputs have to be shown whole."""
        return self.policy.prune.keep_last if state.keep_last is None else state.keep_last

    def _input(self) -> ContextInput:
        return ContextInput(
            policy=self.policy,
            budget=self.budget,
            factor=1.0,
            system_prompt=self.system_prompt,
            tools_tokens=0,
            summary=self.summary,
            summary_tokens=self.counter.count(self.summary),
            summary_through_position=self.cursor,
            history=tuple(self.rows[self.cursor : self.own_from]),
            own=tuple(self.rows[self.own_from :]),
            user=None,
            count=self.counter.count,
            counter_name=self.counter.name,
            view_state=self.state,
            recall=hints_for(RECALL_TOOLS),
        )

    def _summary(self) -> str:
        """Return a text as large as a summary may be."""
        return f"through #{self.cursor}: " + "fact " * (summary_limit(self.policy.summary, self.budget) - 20)

    def _judge(self, fitted: FittedPrompt) -> None:
        prompt, played = fitted.prompt, self.played
        played.calls += 1
        played.tokens += fitted.raw_tokens
        played.uncached_tokens += fitted.raw_tokens - _known_tokens(fitted.view, played.sent)
        played.sent = (prompt.system, prompt.messages)
        if not is_valid(prompt.messages):
            played.faults.append(f"call {played.calls}: a call has no result, or a result no call")
        if not fitted.notes and fitted.view_state.truncated_through_position == 0:
            played.faults += [f"call {played.calls}: {fault}" for fault in self._cut_outputs(fitted)]

    def _cut_outputs(self, fitted: FittedPrompt) -> Iterator[str]:
        """Yield the newest outputs that are not shown as they were stored."""
        outputs = [row for row in self.rows[self.cursor :] if row.role is Role.TOOL]
        outputs = outputs[-min(self.outputs_kept(fitted.view_state), len(self.rows)) :]
        shown = {message.position: message.content for message in fitted.prompt.messages}
        most = self.policy.prune.max_output_bytes
        for row in outputs:
            text = str(row.content)
            if len(text.encode()) <= most and text.strip() and shown.get(row.position) != text:
                yield f"output #{row.position} is not shown whole"


def play(dataset: Dataset, window_tokens: int, policy: ContextPolicy) -> Played:
    """Return what became of a session that fills its window some times."""
    session, said = Session(dataset, window_tokens, policy), 0
    for turn in chain(dataset):
        session.own_from = len(session.rows)
        for item in said_in(turn):
            if item.role == "assistant":
                session.call()
            row = stored_message(item, len(session.rows) + 1)
            session.rows.append(row)
            said += row.token_count
        if said >= WINDOWS_TO_FILL * window_tokens:
            return session.played
    return session.played


def _known_tokens(view: View, before: tuple[str, tuple[PromptMessage, ...]]) -> int:
    """Return the tokens of what stands at the beginning of both prompts."""
    system, messages = before
    if system != view.system:
        return 0
    known = view.fixed_tokens
    for old, new, tokens in zip(messages, view.messages, view.counts, strict=False):
        if old != new:
            break
        known += tokens
    return known


def render(name: str, window: str, on: Played, off: Played) -> str:
    """Return one line of the table."""
    saved = 1 - on.tokens / off.tokens
    cells = (
        name,
        window,
        f"{on.calls:,}",
        f"{on.tokens:,} / {off.tokens:,}",
        f"{saved:.0%}",
        f"{on.uncached_tokens:,} / {off.uncached_tokens:,}",
        str(on.stages["pruned"] + on.stages["pruned_aggressively"]),
        f"{on.stages['summarised']} / {off.stages['summarised']}",
        str(len(on.faults) + len(off.faults)),
    )
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| runs of | window | calls | prompt tokens, pruning on / off | saved | not in the cache on / off | prunes | "
    "summaries on / off | prompts no answer could follow |\n|---|---|--:|--:|--:|--:|--:|--:|--:|"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__)
    parser.add_argument("--data", type=Path, default=SAMPLE, help="folder with the recorded conversations")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--windows", default=",".join(WINDOWS))
    asked = parser.parse_args(arguments)
    datasets = load_datasets(asked.data)
    print(HEAD)
    faults: list[str] = []
    for name in asked.datasets.split(","):
        for window in asked.windows.split(","):
            tokens = int(window.removesuffix("k")) * 1024
            on, off = (play(datasets[name], tokens, policy) for policy in (ON, OFF))
            print(render(name, window, on, off))
            faults += [f"{name} {window}: {fault}" for fault in (*on.faults, *off.faults)]
    print("\n".join(faults[:20]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
