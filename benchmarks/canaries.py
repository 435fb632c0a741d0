"""How many of the things that a user states survive in summaries of a fixed share of the conversation.

Sentences of five kinds (rules, limits, facts, goals, preferences) stand among small talk, values that are stated again
with another value, and pairs of sentences that are alike and hold both. The conversation is summarised in some rounds
by the service's own writer, offline and by a model that keeps only small talk. The summary may have a share of the
conversation's tokens so far. A sentence survives if its telling words stand together in a line of the last summary. A
restated value is resolved if the new one is there and the old one is not.
"""

import argparse
import asyncio
import itertools
import json
import logging
import random
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import cast
from uuid import UUID

import structlog

from benchmarks.figures import aligned
from benchmarks.planted_conversation import BEGIN, SESSION
from benchmarks.planted_memory import Memory, Variant
from benchmarks.planted_summariser import LossySummariser
from benchmarks.replay_data import SAMPLE
from throughline.context.measure import Count
from throughline.domain.basic_types import MessageId
from throughline.domain.message import Message, Role, Source, text_of
from throughline.domain.prompt import AnswerComplete, ModelEvent, ModelRequest, Usage
from throughline.llm.counters import make_counter
from throughline.llm.offline import OfflineModel

SHARES = (0.1, 0.2, 0.3)
ROUNDS = (5, 50)
TALK_SHARE = 0.84
"""Share of small talk in the conversation's characters."""

LEAST_TOKENS = 160
HALVES = ("tuned", "reported")
CANARY_KINDS = ("rule", "limit", "fact", "goal", "preference")


@dataclass(frozen=True, slots=True)
class Canary:
    """A sentence, the words that must stand in one line, and for a restated value the words that must not."""

    kind: str
    words: tuple[str, ...]
    gone: str = ""


@dataclass(slots=True)
class Planted:
    """The texts of a conversation, (role, text), and what to look for in its summary."""

    said: list[tuple[Role, str]] = field(default_factory=list)
    canaries: list[Canary] = field(default_factory=list)


def plant(half: str, seed: int, path: Path = SAMPLE / "canaries.json") -> Planted:
    """Return a conversation with one half of the sentences, at places by `seed`."""
    rng, data, first = random.Random(seed), json.loads(path.read_text("utf-8")), HALVES.index(half)
    planted, pieces = Planted(), []
    for kind, sentences in data["canaries"].items():
        for one in sentences[first::2]:
            pieces.append([one["text"]])
            planted.canaries.append(Canary(kind, tuple(one["words"])))
    for pair in data["restated"][first::2]:
        pieces.append([pair["before"], pair["after"]])
        planted.canaries.append(Canary("restated", (pair["new"],), pair["old"]))
    for pair in data["twins"][first::2]:
        pieces.append([pair["one"], pair["other"]])
        planted.canaries += [Canary("twins", (pair[name],)) for name in ("first", "second")]
    places = sorted(
        (place, text) for piece in pieces for place, text in zip(_spread(len(piece), rng), piece, strict=True)
    )
    stated = sum(len(text) for _, text in places)
    planted.said = list(_among_talk([text for _, text in places], stated, data["talk"], rng))
    return planted


def _spread(count: int, rng: random.Random) -> list[float]:
    return sorted(rng.random() for _ in range(count))


def _among_talk(
    texts: Sequence[str], stated: int, talk: dict[str, list[str]], rng: random.Random
) -> Iterator[tuple[Role, str]]:
    """Yield the texts as messages of the user with small talk between them, in a third of them also before the text."""
    left = stated * TALK_SHARE / (1 - TALK_SHARE)
    for done, text in enumerate(texts):
        end = left * (len(texts) - done - 1) / (len(texts) - done)
        before = rng.choice(talk["user"])
        is_mixed = rng.random() < 1 / 3
        yield Role.USER, f"{before} {text}" if is_mixed else text
        left -= len(before) if is_mixed else 0
        while left > end:
            for role in (Role.ASSISTANT, Role.USER):
                said = rng.choice(talk[role.value])
                left -= len(said)
                yield role, said


@dataclass(slots=True)
class SmallTalkSummariser:
    """A model that returns sentences of the record as its summary, names no facts, and chooses the first ones."""

    count: Count
    rng: random.Random
    context_limit: int = 16_384
    name: str = "double"
    calibration_key: str = "double"
    address: str = ""
    has_known_tokenizer: bool = True
    is_priced: bool = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Answer as a whole."""
        asked = "\n".join(text_of(message.content) for message in request.prompt.messages)
        said = re.findall(r"^\[#(\d+) assistant[^\]\n]*\] (.*)", asked, re.MULTILINE)
        picked = sorted(self.rng.sample(said, min(6, len(said))), key=lambda one: int(one[0]))
        lines = [f"- The assistant said: {text} [#{at}]" for at, text in picked]
        told = re.findall(r"^- The assistant said.*\]$", asked, re.MULTILINE)[-20:]
        text = "\n".join(("## State", *dict.fromkeys((*told, *lines)))) if said or told else "1, 2, 3"
        yield AnswerComplete(text=text, tool_calls=(), usage=Usage(), finish_reason="stop")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the canaries of one conversation, and the summary."""

    kept: dict[str, list[bool]]
    text: str
    tokens: int


async def summarise(planted: Planted, model: object, share: float, rounds: int, count: Count) -> Outcome:
    """Summarise the conversation in so many rounds, and look for the canaries in the last summary."""
    memory = Memory(Variant.TIERED, LEAST_TOKENS, cast(LossySummariser, model), count)
    messages = [_message(at, role, text, count) for at, (role, text) in enumerate(planted.said, 1)]
    for number in range(rounds):
        first, last = (len(messages) * at // rounds for at in (number, number + 1))
        so_far = sum(count(text_of(message.content)) for message in messages[:last])
        memory.limit_tokens = max(int(share * so_far), LEAST_TOKENS)
        await memory.compact(messages[first:last])
    text = memory.rendered()
    kept: dict[str, list[bool]] = {}
    for canary in planted.canaries:
        kept.setdefault(canary.kind, []).append(_survives(canary, text))
    return Outcome(kept, text, count(text))


def _survives(canary: Canary, text: str) -> bool:
    lines = text.casefold().splitlines()
    is_there = any(all(word.casefold() in line for word in canary.words) for line in lines)
    said = re.sub(r"\[#[^\]\n]{1,80}\]", "", text.casefold())  # a position may have the digits of the old value
    return is_there and not (canary.gone and canary.gone.casefold() in said)


def _message(position: int, role: Role, text: str, count: Count) -> Message:
    return Message(
        MessageId(UUID(int=position)), SESSION, position, role, text, Source.API, BEGIN, token_count=count(text) + 4
    )


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options, count = _parse(arguments), make_counter("tiktoken").count
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for name in ("offline", "small talk"):
        rows = [["share", "rounds", "tokens", *CANARY_KINDS, "all five", "restated", "twins"]]
        for share, rounds in itertools.product(SHARES, ROUNDS):
            outcomes = [
                await summarise(plant(options.half, seed), _model(name, seed, count), share, rounds, count)
                for seed in range(1, options.seeds + 1)
            ]
            rows.append(_row(share, rounds, outcomes))
            if options.show:
                print(outcomes[0].text, "\n")
        print(f"{name}, the {options.half} half, {options.seeds} conversations\n\n{aligned(rows)}\n")


def _model(name: str, seed: int, count: Count) -> object:
    return OfflineModel() if name == "offline" else SmallTalkSummariser(count, random.Random(seed))


def _row(share: float, rounds: int, outcomes: Sequence[Outcome]) -> list[str]:
    kept = {kind: [one for outcome in outcomes for one in outcome.kept[kind]] for kind in outcomes[0].kept}
    shares = [kept[kind] for kind in CANARY_KINDS]
    five = list(itertools.chain.from_iterable(shares))
    cells = [f"{fmean(those):.0%}" for those in (*shares, five, kept["restated"], kept["twins"])]
    return [f"{share:.0%}", str(rounds), f"{fmean(outcome.tokens for outcome in outcomes):,.0f}", *cells]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.canaries", description=__doc__)
    parser.add_argument("--half", choices=HALVES, default="tuned")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="print the first summary of each row")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(main())
