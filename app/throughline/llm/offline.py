"""The offline model: deterministic, local, without a key. It is the default, so that a fresh install can chat."""

import asyncio
import re
from collections.abc import AsyncGenerator
from decimal import Decimal
from functools import partial

from throughline.context.delimiters import undelimited
from throughline.context.measure import count_call, count_prompt, count_tool_specs
from throughline.context.summaries.summary_prompt import (
    CLOSING_WORDS,
    CONVERSATION_TAG,
    EXISTING_TAG,
    SUMMARISER_SYSTEM_PROMPT,
)
from throughline.domain.message import text_of
from throughline.domain.model_parameters import ModelParameters
from throughline.domain.model_window import ModelWindow, WindowOrigin
from throughline.domain.prompt import AnswerComplete, ModelEvent, ModelRequest, TextDelta, Usage
from throughline.domain.text import clean_text
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.llm.context_windows import OFFLINE_WINDOW
from throughline.llm.counters import TiktokenCounter, warm_counter
from throughline.llm.offline_answers import Reply, reply_to
from throughline.llm.offline_summary import summarise
from throughline.ports.models import FormatSupport

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
        """Do nothing: there is no server to ask."""

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
            yield TextDelta(piece)
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
    return Reply(summarise(existing, record, max_tokens=most, count=_COUNTER.count))


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
