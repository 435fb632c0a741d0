"""The offline model: deterministic, local, needs no key. The default, so that a fresh install has a working chat."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from throughline.context.frame import unframed
from throughline.context.measure import count_call, count_prompt, count_tool_specs
from throughline.context.summaries.transcript import (
    CLOSING_WORDS,
    CONVERSATION_TAG,
    EXISTING_TAG,
    SUMMARISER_SYSTEM_PROMPT,
    WISHES,
)
from throughline.domain.message import ToolCall, text_of
from throughline.domain.prompt import AnswerComplete, ModelEvent, ModelRequest, Prompt, TextDelta, Usage
from throughline.domain.text import clean_text
from throughline.execution.off_loop import run_off_loop_if_large
from throughline.llm.counters import TiktokenCounter, warm_counter
from throughline.llm.offline_answers import INTRODUCTION, Reply, reply_to
from throughline.llm.offline_summary import summarise
from throughline.llm.windows import OFFLINE_WINDOW

WORDS_PER_YIELD = 16
_OWN_ANSWER = re.compile(
    rf"^\[#\d+ assistant\] (?:Hello! )?{re.escape(INTRODUCTION)}.*?(?=^\[#|\Z)", re.DOTALL | re.MULTILINE
)
"""A chat answer of this model in a record: it only quotes what stands in the record anyhow."""
_PIECE = re.compile(r"\s*\S+|\s+")
_COUNTER = TiktokenCounter()


class OfflineModel:
    """Implements ChatModel without any provider."""

    def __init__(self) -> None:
        """Nothing is loaded before the first request."""
        self._is_warm = False

    @property
    def name(self) -> str:
        """Always `offline`."""
        return "offline"

    @property
    def calibration_key(self) -> str:
        """There is only one."""
        return self.name

    @property
    def context_limit(self) -> int:
        """The window in tokens, chosen: nothing in here depends on it."""
        return OFFLINE_WINDOW

    @property
    def has_known_tokenizer(self) -> bool:
        """It counts with tiktoken itself."""
        return True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the answer word by word; it ends early at `max_output_tokens`, as a real model's would."""
        if not self._is_warm:
            await warm_counter(_COUNTER)
            self._is_warm = True
        size = _size(request.prompt)
        reply = await run_off_loop_if_large(size, partial(self._reply, request))
        pieces, reason = _cut(clean_text(reply.text), request.max_output_tokens)
        for index, piece in enumerate(pieces, start=1):
            yield TextDelta(piece)
            if index % WORDS_PER_YIELD == 0:
                await asyncio.sleep(0)
        text = "".join(pieces)
        weigh = partial(_usage, request, text, reply.calls)
        usage = await run_off_loop_if_large(size, weigh)
        yield AnswerComplete(text, reply.calls, usage, "tool_calls" if reply.calls else reason)

    def _reply(self, request: ModelRequest) -> Reply:
        prompt = request.prompt
        if prompt.system.startswith(SUMMARISER_SYSTEM_PROMPT):
            return Reply(_summary(prompt, request.max_output_tokens))
        return reply_to(prompt, request.tools if request.may_call_tools else ())


def _summary(prompt: Prompt, max_tokens: int) -> str:
    """An extract of what the summariser is given to read, not of what it is told about it."""
    asked = "\n".join(text_of(message.content) for message in prompt.messages)
    existing = unframed(EXISTING_TAG, asked)
    record = unframed(CONVERSATION_TAG, asked)
    _, _, wishes = asked.rpartition(">\n")[2].partition(WISHES)
    return summarise(
        existing,
        _OWN_ANSWER.sub("", record) if existing or record else asked,
        wishes=wishes.partition(CLOSING_WORDS)[0],
        max_tokens=max_tokens,
        count=_COUNTER.count,
    )


def _size(prompt: Prompt) -> int:
    return len(prompt.system) + sum(len(text_of(message.content)) for message in prompt.messages)


def _usage(request: ModelRequest, text: str, calls: Sequence[ToolCall]) -> Usage:
    """The size by the engine's own measure, so that calibration finds nothing to correct."""
    count = _COUNTER.count
    tokens = count_prompt(request.prompt, count_tool_specs(request.tools, count), count)
    return Usage(tokens, count(text) + sum(count_call(call, count) for call in calls))


def _cut(text: str, max_tokens: int) -> tuple[list[str], str]:
    """Return the words that fit and the finish reason; at least one character is always said."""
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
