"""Compactions of a planted conversation, one after the other, with a summariser that honestly loses facts."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from app.context.measure import Count
from app.context.policy import SummaryKind, SummaryPolicy, SummaryShape
from app.context.summaries.ledger import extract_ledger, merge_ledgers
from app.context.summaries.summary_check import Verdict, check_summary
from app.context.summaries.tiers import merge_due, render_summary, stretch_tokens, summary_room
from app.context.summaries.transcript import merge_request, stretch_request, summary_request
from app.domain.ids import StretchId
from app.domain.ledger import LedgerEntry
from app.domain.message import Message, text_of
from app.domain.prompt import Prompt
from app.domain.summary import Stretch
from benchmarks.planted_conversation import Fact

KEPT_AT_A_REWRITING = 0.8


@dataclass(slots=True)
class LossySummariser:
    """Writes one line for each fact it reads and happens to keep, and one of small talk; obeys `max_tokens`.

    It knows the planted facts, so that it can tell what a request holds; it is told nothing else.
    """

    facts: Sequence[Fact]
    rng: random.Random
    count: Count
    calls: int = 0
    tokens: int = 0

    def write(self, prompt: Prompt, max_tokens: int) -> str:
        """Return the summary. Each fact of the request is kept with the same chance; no room drops the unlucky."""
        asked = text_of(prompt.messages[0].content)
        read = [fact for fact in self.facts if fact.key in asked]
        lucky = [fact for fact in read if self.rng.random() < KEPT_AT_A_REWRITING]
        self.rng.shuffle(lucky)
        lines = ["## State"]
        kept: list[Fact] = []
        for fact in lucky:
            if self.count("\n".join((*lines, _line(fact)))) <= max_tokens:
                kept.append(fact)
                lines.append(_line(fact))
        text = "\n".join(("## State", *(_line(fact) for fact in sorted(kept, key=lambda fact: fact.position))))
        gist = f"{text}\n- Small talk."
        text = gist if self.count(gist) <= max_tokens else text
        self.calls += 1
        self.tokens += self.count(prompt.system) + self.count(asked) + self.count(text)
        return text


@dataclass(slots=True)
class Memory:
    """A session's summary as it grows."""

    shape: SummaryShape
    limit_tokens: int
    summariser: LossySummariser
    count: Count
    stretches: tuple[Stretch, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    policy: SummaryPolicy = field(default_factory=SummaryPolicy)

    def compact(self, messages: Sequence[Message]) -> None:
        """Summarise `messages`, which follow what is summarised already."""
        self.ledger = merge_ledgers(self.ledger, extract_ledger(messages))
        if self.shape is SummaryShape.ROLLING:
            self._rewrite(messages)
        else:
            self._append(messages)
            self._merge()

    def rendered(self) -> str:
        """Return the whole summary as a prompt shows it."""
        return self._render(self.ledger)

    def narrative(self) -> str:
        """Return the part of it that the model wrote."""
        return self._render(())

    def ledger_text(self) -> str:
        """Return the part of it that no model wrote."""
        return self.rendered().removeprefix(self.narrative())

    @property
    def _narrative_tokens(self) -> int:
        return summary_room(self.limit_tokens, SummaryKind.HYBRID).narrative_tokens

    def _render(self, ledger: Sequence[LedgerEntry]) -> str:
        return render_summary(
            self.stretches, ledger, limit_tokens=self.limit_tokens, kind=SummaryKind.HYBRID, count=self.count
        ).text

    def _rewrite(self, messages: Sequence[Message]) -> None:
        existing = self.stretches[0].text if self.stretches else ""
        most = self._narrative_tokens
        prompt = summary_request(existing, messages, replace(self.policy, max_tokens=most))
        self.stretches = (self._stretch(self._ask(prompt, most), 1, messages[-1]),)

    def _append(self, messages: Sequence[Message]) -> None:
        most = stretch_tokens(self.stretches, self._narrative_tokens)
        prompt = stretch_request(messages, self.policy, max_tokens=most)
        leaf = self._stretch(self._ask(prompt, most), messages[0].position, messages[-1])
        self.stretches = (*self.stretches, leaf)

    def _merge(self) -> None:
        while (task := merge_due(self.stretches, self._narrative_tokens)) is not None:
            parts = self.stretches[task.start : task.stop]
            text = self._ask(merge_request(parts, self.policy, max_tokens=task.max_tokens), task.max_tokens)
            merged = replace(parts[-1], from_position=parts[0].from_position, level=task.level, text=text)
            self.stretches = (*self.stretches[: task.start], merged, *self.stretches[task.stop :])

    def _ask(self, prompt: Prompt, max_tokens: int) -> str:
        text = self.summariser.write(prompt, max_tokens)
        replaced = self.count(text_of(prompt.messages[0].content))
        checked = check_summary(text, replaced_tokens=replaced, max_tokens=max_tokens, count=self.count)
        if checked.verdict is not Verdict.ACCEPT or checked.text != text:
            raise AssertionError(f"the double's summary was not taken as it is: {checked.reason or 'cut'}")
        return text

    def _stretch(self, text: str, first: int, last: Message) -> Stretch:
        return Stretch(
            id=StretchId(UUID(int=last.position)),
            from_position=first,
            through_position=last.position,
            through_id=last.id,
            level=0,
            text=text,
            token_count=self.count(text),
            model="double",
            read_hash="",
        )


def _line(fact: Fact) -> str:
    return f"- {fact.sentence} [#{fact.position}]"
