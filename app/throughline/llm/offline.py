"""The offline model: deterministic, local, without a key. It is the default, so that a fresh install can chat."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice

from throughline.context.measure import count_call, count_prompt, count_tool_specs
from throughline.context.summaries.keep_lines import KEEP_TASK
from throughline.context.summaries.readable_text import told_sentences
from throughline.context.summaries.statements import STATES, has_word, importance, is_filler, statement_in
from throughline.context.summaries.summary_prompt import (
    CLOSING_WORDS,
    CONVERSATION_TAG,
    EXISTING_TAG,
    NOTHING,
    SUMMARISER_SYSTEM_PROMPT,
)
from throughline.context.view.placeholder_texts import TAG as RECALL_TAG
from throughline.context.view.placeholder_texts import undelimited
from throughline.domain.message import Role, clean_text, text_of
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.domain.prompt import AnswerComplete, ModelEvent, ModelParameters, ModelRequest, TextPiece, Usage
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.llm.context_windows import OFFLINE_WINDOW
from throughline.llm.counters import TiktokenCounter, warm_counter
from throughline.llm.offline_answers import (
    INTRODUCTION,
    MAX_CHARACTERS,
    Reply,
    reply_to,
    sentences_of,
)
from throughline.ports.models import FormatSupport

PART, SMALL_PART = 3, 8
"""Part of a record's tokens that a summary may take: a third, or an eighth where facts are kept beside it."""

LONGEST_LINE = 2 * MAX_CHARACTERS
"""Longest line taken from an earlier summary, so that one line alone always fits."""

SMALL_SUMMARY_TOKENS = 160
"""Size up to which a summary is small enough in any case; above it, a third of a record is kept."""

MOST_OF_MESSAGE = 3
"""Most sentences kept from one message, if each of them states something."""

_HEAD = re.compile(r"^\[#(\d+) (user|assistant|tool)[^\[\]\n]*+\] ?", re.MULTILINE)
_PART_HEAD = re.compile(r"(?:\[#\d+-#\d+\]|#.*|\W*)")
_CITED = re.compile(r"\[#(\d+)(?:-#\d+)?\]\Z")
_TAGGED_LINE = re.compile(r"\n[^\S\n]*+\[#")
"""Start of a line with a tool call, or with text that imitates another message."""

_TAG = re.compile(r"\[#\d+[^\[\]\n]{0,80}\]\s*+")


def summarise(
    existing: str, record: str, *, max_tokens: int, count: Callable[[str], int], keeps_facts: bool = False
) -> str:
    """Return the lines of the earlier summaries `existing` and the most important ones of `record`, in `max_tokens`.

    If they are too many, the least important are left out first; among equals each part of the conversation keeps one.
    With `keeps_facts`, what users state is kept beside the text, which then tells only the rest, in fewer words.
    """
    kept = (
        line[:LONGEST_LINE] for line in existing.split("\n") if not _PART_HEAD.fullmatch(line) and NOTHING not in line
    )
    found = list(dict.fromkeys((*kept, *_lines_of(record, keeps_facts=keeps_facts))))
    lines = [line for line in found if not is_filler(_said(line)[1])] or ([] if keeps_facts else found)
    size, part = count(existing), SMALL_PART if keeps_facts else PART
    most = size + count(record) // part if record else size * 9 // 10
    budget = min(max_tokens, max(most, SMALL_SUMMARY_TOKENS))
    return "\n".join(_fitting(lines, budget, count)) if lines else f"- {NOTHING}"


def _lines_of(record: str, *, keeps_facts: bool) -> Iterator[str]:
    """Yield the lines for each message of `record`, without text that looks like a position's tag."""
    heads = list(_HEAD.finditer(record))
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(record)], strict=False):
        text = _TAG.sub("", _TAGGED_LINE.split(record[head.end() : end], maxsplit=1)[0])
        if INTRODUCTION in text or f"<{RECALL_TAG}>" in text:
            continue
        speaker = "" if head[2] == Role.USER else f"{head[2]}: "
        best = _rest_of(text, Role(head[2])) if keeps_facts else _best_of(text, Role(head[2]))
        yield from (f"- {speaker}{sentence} [#{head[1]}]" for sentence in best)


def _best_of(text: str, role: Role) -> list[str]:
    """Return the sentences that state something, or else the most important one."""
    sentences = [sentence for sentence in sentences_of(text) if not sentence.startswith("```")]
    stating = islice((one for one in sentences if importance(one, role) >= STATES), MOST_OF_MESSAGE)
    return list(stating) or sorted(sentences, key=importance, reverse=True)[:1]


def _rest_of(text: str, role: Role) -> list[str]:
    """Return the best sentence beside those that are kept as facts; none if it is small talk or a number alone."""
    if role is not Role.USER:
        return [one for one in _best_of(text, role) if importance(one) > STATES]
    told = _best_of("\n".join(filter(has_word, told_sentences(text))), role)
    rest = (one for one in told if len(one) >= MAX_CHARACTERS or not statement_in(one))
    return [one for one in rest if importance(one) >= STATES - 1]


def _fitting(lines: Sequence[str], budget: int, count: Callable[[str], int]) -> list[str]:
    """Return the lines if they fit, or else the most important ones; at least one line."""
    worths = {line: importance(text, role) for line in lines for role, text in (_said(line),)}
    sizes = {line: count(line) + 1 for line in lines}
    chosen: set[str] = set()
    left = budget
    for level in sorted({*worths.values()}, reverse=True):
        equal = [line for line in lines if worths[line] == level]
        taken = _thinned(equal, left, sizes)
        chosen.update(taken if chosen or taken else equal[-1:])
        left -= sum(sizes[line] for line in taken)
        if len(taken) < len(equal):
            break
    return [line for line in lines if line in chosen]


def _said(line: str) -> tuple[Role, str]:
    """Return the speaker and the sentence of a summary's line."""
    bare = _CITED.sub("", line).strip().removeprefix("- ")
    speaker, colon, text = bare.partition(": ")
    return (Role(speaker), text) if colon and speaker in {Role.ASSISTANT, Role.TOOL} else (Role.USER, bare)


def _thinned(lines: Sequence[str], budget: int, sizes: dict[str, int]) -> Sequence[str]:
    """Return the lines if they fit, or else the newest of each part of the conversation; empty if none fits."""
    positions = [int(found[1]) if (found := _CITED.search(line)) else 0 for line in lines]
    chosen, parts, last = lines, len(lines), max(positions, default=0)
    while chosen and sum(sizes[line] for line in chosen) > budget:
        parts = parts * 7 // 8
        chosen = list({at * parts // (last + 1): line for at, line in zip(positions, lines, strict=True)}.values())
        if parts == 0:
            return chosen if sizes[chosen[0]] <= budget else []
    return chosen


WORDS_PER_YIELD = 16
TOKENS_PER_WORD = 2
"""Tokens that a summary may have for each word of the limit in its request.

A request names half as many words as it allows tokens. A longer summary would be cut and lose its end.
"""

_MOST_WORDS = re.compile(rf"^{CLOSING_WORDS}, in at most (\d+) words", re.MULTILINE)
_PIECE = re.compile(r"\s*\S+|\s+")
_COUNTER = TiktokenCounter()


class OfflineModel:
    """The ChatModel port without a provider: fixed rules make the answers and summaries from the prompt's text."""

    name = calibration_key = "offline"
    address = ""
    context_limit = OFFLINE_WINDOW
    window = ModelWindow(OFFLINE_WINDOW, WindowOrigin.TABLE)
    has_known_tokenizer = True
    is_priced = True
    format_support = FormatSupport.NONE

    def __init__(self) -> None:
        self._is_warm = False

    async def ask_window(self) -> None:
        pass

    def check_parameters(self, parameters: ModelParameters) -> None:
        """Take every parameter, so that an agent file can be tried without its provider; none has an effect."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the answer word by word; it ends early at `max_output_tokens`, as a real model's would."""
        if not self._is_warm:
            await warm_counter(_COUNTER)
            self._is_warm = True
        size = len(request.prompt.system) + sum(len(text_of(message.content)) for message in request.prompt.messages)
        reply = await run_off_loop_if_large(size, partial(_reply, request))
        pieces, reason = _cut(clean_text(reply.text), request.max_output_tokens)
        for index, piece in enumerate(pieces, start=1):
            yield TextPiece(piece)
            if index % WORDS_PER_YIELD == 0:
                await asyncio.sleep(0)
        said = Reply("".join(pieces), reply.calls)
        usage = await run_off_loop_if_large(size, partial(_usage, request, said))
        yield AnswerComplete(said.text, said.calls, usage, "tool_calls" if said.calls else reason)


def _reply(request: ModelRequest) -> Reply:
    prompt = request.prompt
    if not prompt.system.startswith(SUMMARISER_SYSTEM_PROMPT):
        return reply_to(prompt, request.tools if request.may_call_tools else ())
    asked = "\n".join(text_of(message.content) for message in prompt.messages)
    existing, record = undelimited(EXISTING_TAG, asked), undelimited(CONVERSATION_TAG, asked)
    words = _MOST_WORDS.search(asked, asked.rfind(f"</{CONVERSATION_TAG}>") + 1)
    most = min(request.max_output_tokens, TOKENS_PER_WORD * int(words[1])) if words else request.max_output_tokens
    keeps_facts = KEEP_TASK in asked
    return Reply(summarise(existing, record, max_tokens=most, count=_COUNTER.count, keeps_facts=keeps_facts))


def _usage(request: ModelRequest, said: Reply) -> Usage:
    """Return the usage by the engine's own count, so that calibration finds nothing to correct. Calls cost nothing."""
    count = _COUNTER.count
    tokens = count_prompt(request.prompt, count_tool_specs(request.tools, count), count)
    said_tokens = count(said.text) + sum(count_call(call, count) for call in said.calls)
    return Usage(tokens, said_tokens, cost_usd=Decimal())


def _cut(text: str, max_tokens: int) -> tuple[list[str], str]:
    """Return the words that fit and the finish reason; at least one character is always returned."""
    pieces: list[str] = []
    left = max_tokens
    for piece in _PIECE.findall(text):
        cost = _COUNTER.count(piece)
        if cost > left:
            rest = piece[: max(left, 0 if pieces else 1)]
            return [*pieces, rest] if rest else pieces, "length"
        pieces.append(piece)
        left -= cost
    return pieces, "stop"
