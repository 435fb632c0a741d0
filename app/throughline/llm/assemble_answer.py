"""Assembly of a streamed answer from its chunks, and the check that it is complete.

An answer consists of reasoning, text, tool calls, usage and finish reason.
"""

import re
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import structlog
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import UsageMetadata

from throughline.domain.errors import AnswerIncomplete, AnswerTooLong, ContextOverflow, ModelRefused
from throughline.domain.message import ToolCall, clean_text, is_blank, text_of
from throughline.domain.prompt import (
    CUT_REASONS,
    WINDOW_FULL,
    AnswerComplete,
    Prompt,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    Usage,
)
from throughline.domain.reasoning import Reasoning, SplitText, ThinkBlockSplitter
from throughline.domain.tool import is_json_object
from throughline.llm.translate_messages import CALL_ID, NO_PARTS, PartKind, PartsAssembly, read_reasoning

MOST_CHARACTERS_PER_TOKEN = 8
"""Characters per token that no tokenizer exceeds over a whole ordinary prompt; words are counted only beyond it."""

LEAST_SHARE = 0.6
"""Share of the prompt's words below which a count must belong to a shortened prompt: each word is at least one token.
"""

_WORD = re.compile(r"[^\W_]+")
log = structlog.get_logger(__name__)


def is_token_count(value: object) -> bool:
    """Return whether a provider's value is a number of tokens: an integer, and neither text nor a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def token_counts(usage: object) -> dict[str, object] | None:
    """Return the readable part of a provider's usage: integers, and details made of integers; None if there is none."""
    if not isinstance(usage, Mapping):
        return None
    found: dict[str, object] = {}
    for name, value in usage.items():
        if isinstance(value, Mapping) and str(name).endswith("_details"):
            found[name] = {part: count for part, count in value.items() if is_token_count(count)}
        elif is_token_count(value):
            found[name] = value
    return found or None


def checked_usage(usage: Usage, prompt: Prompt, model: str) -> Usage:
    """Return the usage, without the prompt's count if the provider cannot have read the whole prompt.

    Such a count would lower our estimates, so that the next prompt would be even longer. It is logged, because the
    operator has to set another window for the server or the agent.
    """
    reported = usage.input_tokens
    if reported is None or not _is_shortened(prompt, reported):
        return usage
    log.warning("prompt truncated by provider", model=model, reported=reported)
    return replace(usage, input_tokens=None)


def _is_shortened(prompt: Prompt, reported: int) -> bool:
    texts = [prompt.system, *(text_of(message.content) for message in prompt.messages)]
    if reported * MOST_CHARACTERS_PER_TOKEN >= sum(len(text) for text in texts):
        return False
    words = sum(1 for text in texts for _ in _WORD.finditer(text))
    return reported < LEAST_SHARE * words


@dataclass(slots=True)
class StreamText:
    """Joins the pieces of a streamed text and replaces characters that cannot be stored.

    The first half of a surrogate pair at a piece's end is kept for the next piece.
    """

    _held: str = ""
    _pieces: list[str] = field(default_factory=list)

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that is complete now."""
        text = self._held + piece
        self._held = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" else ""
        return self._keep(text[: len(text) - len(self._held)])

    def flush(self) -> str:
        """Return the text held back so far; call it after the last piece."""
        held, self._held = self._held, ""
        return self._keep(held)

    @property
    def whole(self) -> str:
        """All text so far."""
        return "".join(self._pieces)

    def _keep(self, text: str) -> str:
        cleaned = clean_text(text)
        if cleaned:
            self._pieces.append(cleaned)
        return cleaned


MOST_CALLS = 1_000
"""Most tool calls of one answer; only the first TurnConfig.max_calls_per_step of them are run."""

MOST_NAME_CHARACTERS = 200
"""Longest name, sent with each piece, of a call whose pieces are passed on. Tools have shorter names."""


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a tool call as the provider sent it: '' for what it does not contain.

    `index` is the provider's number of the call; some number no calls, or all of them 0.
    """

    index: int | str | None
    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class _Call:
    """A tool call while its pieces arrive.

    `number` is its position in the answer, `id` the provider's id, `final_id` the id under which it is passed on, ''
    until it is chosen. `_unsent` are arguments that were not passed on yet.
    """

    number: int
    id: str = ""
    final_id: str = ""
    name: str = ""
    arguments: StreamText = field(default_factory=StreamText)
    _unsent: list[str] = field(default_factory=list)
    _is_sent: bool = False

    def take(self, name: str, arguments: str) -> bool:
        """Add a piece, and return whether arguments can be passed on now.

        A name that only repeats the known one is ignored: some servers send it with every piece. Arguments wait for the
        name, and blank ones for others: a call with blank arguments has none.
        """
        if name != self.name:
            self.name += name
        text = self.arguments.feed(arguments)
        if text:
            self._unsent.append(text)
        return not is_blank(text) and self._can_send

    def end(self) -> bool:
        """Add what was held back of the arguments, and return whether arguments can be passed on."""
        text = self.arguments.flush()
        if text:
            self._unsent.append(text)
        return bool(self._unsent) and self._can_send and (self._is_sent or not is_blank("".join(self._unsent)))

    @property
    def _can_send(self) -> bool:
        return 0 < len(self.name) <= MOST_NAME_CHARACTERS

    def send(self) -> ToolCallPiece:
        """Return the arguments that were not passed on yet."""
        text, self._is_sent = "".join(self._unsent), True
        self._unsent.clear()
        return ToolCallPiece(self.number, self.final_id, clean_text(self.name), text)


@dataclass(slots=True)
class CallsAssembly:
    """The tool calls of one answer while their pieces arrive.

    `max_characters` limits the names and arguments of all of them together. `taken_ids` are the ids that no call may
    get; the ids of the calls are added.
    """

    max_characters: int
    taken_ids: set[str]
    _calls: list[_Call] = field(default_factory=list)
    _newest: dict[int | str | None, _Call] = field(default_factory=dict)
    _by_id: dict[tuple[int | str | None, str], _Call] = field(default_factory=dict)
    _characters: int = 0

    def add(self, piece: CallPiece) -> Iterator[ToolCallPiece]:
        """Add a piece; yield the arguments that can be passed on. Raises AnswerTooLong if the limits are exceeded."""
        self._characters += len(piece.name) + len(piece.arguments)
        call = self._call_of(piece.index, piece.id)
        if self._characters > self.max_characters or len(self._calls) > MOST_CALLS:
            limit = f"{MOST_CALLS:,} calls or {self.max_characters:,} characters"
            raise AnswerTooLong(f"The answer was stopped: its tool calls exceeded {limit}. Ask for less at a time.")
        if call.take(piece.name, piece.arguments):
            yield self._sent(call)

    def flush(self) -> Iterator[ToolCallPiece]:
        """Yield the arguments held back so far; call it after the last piece."""
        for call in self._calls:
            if call.end():
                yield self._sent(call)

    def finish(self) -> tuple[ToolCall, ...]:
        """Return the calls. One without a usable id of its own, or with a taken one, has a new id.

        Some servers count calls from 0 in every answer.
        """
        return tuple(
            ToolCall(self._choose_id(call), clean_text(call.name), call.arguments.whole) for call in self._calls
        )

    @property
    def sent_ids(self) -> Sequence[str]:
        """The ids of the calls as the provider sent them."""
        return [call.id for call in self._calls]

    def _sent(self, call: _Call) -> ToolCallPiece:
        self._choose_id(call)
        return call.send()

    def _choose_id(self, call: _Call) -> str:
        if not call.final_id:
            is_usable = CALL_ID.fullmatch(call.id) and call.id not in self.taken_ids
            call.final_id = call.id if is_usable else f"call_{secrets.token_hex(12)}"
            self.taken_ids.add(call.final_id)
        return call.final_id

    def _call_of(self, index: int | str | None, call_id: str) -> _Call:
        """Return the call to which a piece belongs: the newest with its index, unless the piece has another id.

        Some servers repeat index 0 for every call.
        """
        call = self._newest.get(index)
        if call is None or (call_id and call.id and call.id != call_id):
            call = self._by_id.get((index, call_id)) or self._new_call(index)
        call.id = call.id or call_id
        self._by_id[index, call.id] = call
        return call

    def _new_call(self, index: int | str | None) -> _Call:
        call = self._newest[index] = _Call(len(self._calls))
        self._calls.append(call)
        return call


Delta: TypeAlias = ReasoningPiece | TextPiece | ToolCallPiece

COMPLETE = frozenset({
    *("stop", "end_turn", "stop_sequence", "tool_calls", "tool_use", "tool_call", "function_call", "completed"),
    *("complete", "eos", "eos_token"),
})
REFUSED = frozenset({
    *("refusal", "content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "image_safety"),
    "guardrail_intervened",
})
REASON_KEYS = ("finish_reason", "stop_reason", "done_reason", "status")
MODEL_KEYS = ("model_name", "model")
MOST_TOKENS = 100_000_000
"""Largest plausible token count in a report; larger ones are ignored so that they do not distort sums and calibration.
"""


@dataclass(slots=True)
class AnswerAssembly:
    """One answer while its chunks arrive.

    `adds_usage`: the provider reports usage in parts to be added up; otherwise its last report counts.
    `max_call_characters` limits the names and arguments of all tool calls together, and the signatures of reasoning.
    `taken_ids` are the tool call ids in the prompt, which no call of the answer gets.
    `returned` are the parts of the reasoning that the provider wants back, from the model `model_key`.
    """

    adds_usage: bool
    max_call_characters: int
    taken_ids: Collection[str] = ()
    returned: frozenset[PartKind] = NO_PARTS
    model_key: str = ""
    usage: Usage = field(default_factory=Usage)
    finish_reason: str = ""
    model: str = ""
    refused: bool = False
    _calls: CallsAssembly = field(init=False)
    _said: StreamText = field(default_factory=StreamText)
    _thought: StreamText = field(default_factory=StreamText)
    _splitter: ThinkBlockSplitter = field(default_factory=ThinkBlockSplitter)
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _characters: int = 0
    _parts: PartsAssembly = field(init=False)

    def __post_init__(self) -> None:
        self._parts = PartsAssembly(self.returned, self.max_call_characters)
        self._calls = CallsAssembly(self.max_call_characters, set(self.taken_ids))

    def add(self, chunk: AIMessageChunk) -> Iterator[Delta]:
        """Add a chunk; yield its reasoning, text and tool calls, with characters that cannot be stored replaced.

        Raises AnswerTooLong if the tool calls exceed their limits.
        """
        metadata = chunk.response_metadata
        self.finish_reason = _finish_reason(metadata) or self.finish_reason
        self.model = _model_named(metadata) or self.model
        self.refused = self.refused or _is_refusal(chunk)
        if chunk.usage_metadata is not None:
            self._add_usage(chunk.usage_metadata)
        self._parts.add(chunk, self._characters)
        if reasoning := read_reasoning(chunk):
            self._splitter.stop()
            yield from self._thinks(self._thought.feed(reasoning))
        yield from self._says(self._said.feed(chunk.content if isinstance(chunk.content, str) else str(chunk.text)))
        for sent in chunk.tool_call_chunks:
            piece = CallPiece(sent["index"], sent["id"] or "", sent["name"] or "", sent["args"] or "")
            yield from self._calls.add(piece)

    def flush(self) -> Iterator[Delta]:
        """Yield what was held back so far; call it after the last chunk."""
        yield from self._thinks(self._thought.flush())
        yield from self._says(self._said.flush())
        yield from self._split(self._splitter.flush())
        yield from self._calls.flush()

    def finish(self, model: str) -> AnswerComplete:
        """Return the answer. Raises AnswerIncomplete, ModelRefused or ContextOverflow if it is not a complete one.

        If the answer was cut off at its limit, calls with incomplete arguments are dropped.
        """
        reason = self.finish_reason.lower()
        self._check_reason(model, reason)
        calls, sent_ids = self._calls.finish(), self._calls.sent_ids
        if reason in CUT_REASONS:
            whole = [number for number, call in enumerate(calls) if _is_whole(call)]
            calls, sent_ids = tuple(calls[number] for number in whole), [sent_ids[number] for number in whole]
        text = "".join(self._text)
        if not calls and is_blank(text):
            raise self._empty(model, reason)
        return AnswerComplete(
            text=text,
            tool_calls=tuple(map(_with_arguments, calls)),
            usage=self.usage,
            finish_reason=self.finish_reason,
            model=self.model,
            reasoning=self._finished_reasoning(sent_ids),
        )

    def _finished_reasoning(self, sent_ids: Sequence[str]) -> Reasoning | None:
        """Return the reasoning, None without any. `sent_ids` are the ids of the calls as the provider sent them."""
        text, parts = "".join(self._reasoning), self._parts.finish(sent_ids, self._thought.whole)
        return Reasoning(text, parts, self.model_key) if parts or not is_blank(text) else None

    def _thinks(self, reasoning: str) -> Iterator[ReasoningPiece]:
        if reasoning:
            self._reasoning.append(reasoning)
            yield ReasoningPiece(reasoning)

    def _says(self, text: str) -> Iterator[ReasoningPiece | TextPiece]:
        """Yield the text; blocks at its beginning are reasoning, unless the server separates reasoning itself."""
        if text:
            yield from self._split(self._splitter.feed(text))

    def _split(self, split: SplitText) -> Iterator[ReasoningPiece | TextPiece]:
        yield from self._thinks(split.reasoning)
        if split.text:
            self._text.append(split.text)
            self._characters += len(split.text)
            yield TextPiece(split.text)

    def _check_reason(self, model: str, reason: str) -> None:
        if self.refused or reason in REFUSED:
            raise ModelRefused(f"{model}: the model or its content filter declined to answer")
        if reason not in COMPLETE | CUT_REASONS:
            raise AnswerIncomplete(f"{model}: the answer broke off{_named(reason)}; try again")

    def _empty(self, model: str, reason: str) -> ContextOverflow | AnswerIncomplete:
        if reason == WINDOW_FULL:
            return self._window_full(model)
        if reason in CUT_REASONS and self._reasoning:
            return AnswerIncomplete(
                f"{model}: the whole answer was reasoning{_named(reason)}; try again, with a larger "
                "context.response_reserve or less reasoning"
            )
        return AnswerIncomplete(f"{model}: the answer was empty{_named(reason)}; try again")

    def _window_full(self, model: str) -> ContextOverflow:
        """Return the error for a prompt that was accepted but left no room for an answer.

        The reported usage then equals the window.
        """
        prompt, said = self.usage.input_tokens, self.usage.output_tokens
        window = None if prompt is None or said is None else prompt + said
        return ContextOverflow(
            f"{model}: the prompt left no room for an answer ({WINDOW_FULL})",
            window_tokens=window,
            prompt_tokens=prompt,
        )

    def _add_usage(self, reported: UsageMetadata) -> None:
        known, read = self.usage, reported.get("input_token_details") or {}
        written = reported.get("output_token_details") or {}
        self.usage = Usage(
            self._next_usage(known.input_tokens, reported["input_tokens"]) or None,  # a prompt of 0 tokens is ignored
            self._next_usage(known.output_tokens, reported["output_tokens"]),
            self._next_usage(known.cached_tokens, read.get("cache_read")),
            self._next_usage(known.cache_write_tokens, _cache_writes(read)),
            self._next_usage(known.reasoning_tokens, written.get("reasoning")),
        )

    def _next_usage(self, known: int | None, reported: object) -> int | None:
        """Return the token count after a further report; a report that is no number, or implausible, is ignored."""
        if not isinstance(reported, int):
            return known
        total = reported + (known or 0) if self.adds_usage else reported
        return total if reported >= 0 and total <= MOST_TOKENS else known


def _finish_reason(metadata: Mapping[str, object]) -> str:
    if metadata.get("status") == "incomplete":  # OpenAI's Responses API
        details = metadata.get("incomplete_details")
        return str(details.get("reason", "incomplete")) if isinstance(details, Mapping) else "incomplete"
    return next((value for key in REASON_KEYS if isinstance(value := metadata.get(key), str) and value), "")


def _model_named(metadata: Mapping[str, object]) -> str:
    """Return the name of the answering model in a chunk's metadata, '' if it has none."""
    named = next((value for key in MODEL_KEYS if isinstance(value := metadata.get(key), str)), "")
    return clean_text(named[:MOST_NAME_CHARACTERS])


def _is_whole(call: ToolCall) -> bool:
    return not is_blank(call.arguments) and is_json_object(call.arguments)


def _with_arguments(call: ToolCall) -> ToolCall:
    return replace(call, arguments="{}") if is_blank(call.arguments) else call


def _is_refusal(chunk: AIMessageChunk) -> bool:
    """Return whether the chunk is OpenAI's `refusal` text or block, or reports a prompt that Google blocked."""
    feedback = chunk.response_metadata.get("prompt_feedback")
    if isinstance(feedback, Mapping) and feedback.get("block_reason"):
        return True
    blocks = [] if isinstance(chunk.content, str) else chunk.content
    if any(isinstance(block, Mapping) and block.get("type") == "refusal" for block in blocks):
        return True
    return bool(chunk.additional_kwargs.get("refusal"))


def _named(reason: str) -> str:
    return f" (finish reason {reason[:40]!r})" if reason else " without a finish reason"


def _cache_writes(details: Mapping[str, object]) -> object:
    """Return the tokens written to the provider's cache. LangChain moves Anthropic's to fields by their lifetime."""
    by_lifetime = [count for name, count in details.items() if name.startswith("ephemeral_") and isinstance(count, int)]
    return sum(by_lifetime) or details.get("cache_creation")
