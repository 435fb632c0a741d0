"""A summary model that honestly loses facts: it keeps each with the same chance whenever it rewrites it."""

import random
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from benchmarks.planted_conversation import Fact
from throughline.context.measure import Count
from throughline.domain.message import text_of
from throughline.domain.prompt import AnswerComplete, ModelEvent, ModelRequest, Prompt, Usage

KEPT_AT_A_REWRITING = 0.8
WINDOW_TOKENS = 16_384
_READ = re.compile(r"^\[#(\d+)(?:-#(\d+))?", re.MULTILINE)


@dataclass(slots=True)
class LossySummariser:
    """Writes one line for each fact it reads and happens to keep, and one of small talk; obeys its limit.

    It knows the planted facts, so that it can tell what a request holds; it is told nothing else. It does as it is
    told where two places disagree: of a value and its correction it keeps the later one.
    """

    facts: Sequence[Fact]
    rng: random.Random
    count: Count
    calls: int = 0
    tokens: int = 0
    name: str = "double"
    calibration_key: str = "double"
    context_limit: int = WINDOW_TOKENS
    has_known_tokenizer: bool = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer with the summary as a whole."""
        text = self.write(request.prompt, request.max_output_tokens or WINDOW_TOKENS)
        yield AnswerComplete(text=text, tool_calls=(), usage=Usage(), finish_reason="stop")

    def write(self, prompt: Prompt, max_tokens: int) -> str:
        """Return the summary. Each fact of the request is kept with the same chance; no room drops the unlucky."""
        asked = text_of(prompt.messages[0].content)
        lines = ["## State", _gist(asked)]
        kept: list[Fact] = []
        for fact in self._lucky(asked):
            if self.count("\n".join((*lines, _line(fact)))) <= max_tokens:
                kept.append(fact)
                lines.append(_line(fact))
        text = "\n".join((*lines[:2], *(_line(fact) for fact in sorted(kept, key=lambda fact: fact.position))))
        self.calls += 1
        self.tokens += self.count(prompt.system) + self.count(asked) + self.count(text)
        return text

    def _lucky(self, asked: str) -> list[Fact]:
        read = [fact for fact in self.facts if fact.key in asked]
        lucky = [fact for fact in read if self.rng.random() < KEPT_AT_A_REWRITING]
        self.rng.shuffle(lucky)
        withdrawn = {fact.withdrawn for fact in lucky}
        return [fact for fact in lucky if fact.key not in withdrawn]


def _gist(asked: str) -> str:
    """Say which part the rest of the talk stood in, so that what was added is mentioned."""
    read = [int(number) for match in _READ.finditer(asked) for number in match.groups() if number]
    return f"- Small talk [#{min(read)}-#{max(read)}]."


def _line(fact: Fact) -> str:
    return f"- {fact.sentence} [#{fact.position}]"
