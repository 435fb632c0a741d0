"""The double itself: checks a request, takes the next step of its script, and records it all."""

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from fakes.provider_double.chat_request import ChatRequest, check_request, check_window, find_model, parse_body
from fakes.provider_double.counting import texts_of
from fakes.provider_double.embeddings import EmbeddingDouble
from fakes.provider_double.json_types import Json
from fakes.provider_double.refusals import Refused
from fakes.provider_double.replies import Reply, default_step, refusal_reply, step_reply
from fakes.provider_double.script import ANY_TURN, SUMMARISER, Failure, Script, ScriptStep
from throughline.context.summaries.summary_prompt import EXISTING_TAG, SUMMARISER_SYSTEM_PROMPT
from throughline.context.view.placeholder_texts import undelimited

_SHOWN = re.compile(r"^\[#(\d+) (?:user|assistant|tool)\b", re.MULTILINE)
_BLOCK = 4096


class Verdict(StrEnum):
    """What became of a request: answered, failed by the script, or refused and why."""

    ANSWERED = "answered"
    FAILED = "failed"
    OVER_WINDOW = "over_window"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request.

    `line` is the script line it was answered from, `conversation` the name its system message carries.
    `overlapped` tells that another request of the same conversation was still being answered. `positions` are the
    numbers of the `[#N role …` record lines it was shown. `is_whole` tells that its answer was sent to the end, to a
    client that was still there. `prompt` is empty where prompts are not kept; `shared_bytes` of
    the `previous_bytes` of the conversation's last prompt stand at the start of this one, too. `cache_read_tokens`,
    `cache_written_tokens` and `markers` (in the request) are of providers with a prompt cache.
    """

    model: str
    verdict: Verdict = Verdict.ANSWERED
    number: int = 0
    at: float = field(default_factory=time.time)
    conversation: str = ""
    line: str = ""
    refusal: str = ""
    prompt_tokens: int = 0
    window_tokens: int = 0
    max_tokens: int | None = None
    prompt: tuple[Json, ...] = ()
    tools: tuple[Json, ...] = ()
    settings: Json = field(default_factory=dict)
    positions: tuple[int, ...] = ()
    overlapped: bool = False
    previous_bytes: int = 0
    shared_bytes: int = 0
    cache_read_tokens: int = 0
    cache_written_tokens: int = 0
    markers: int = 0
    is_whole: bool = False

    @property
    def is_summary(self) -> bool:
        """Whether a summary was asked for."""
        return self.line == "summariser"

    def as_json(self) -> Json:
        """Return the record for the control routes."""
        return asdict(self)


@dataclass(slots=True)
class PrefixMeter:
    """Compares each prompt of a conversation with the one before: tools first, then messages, as caches see them."""

    last: dict[str, bytes] = field(default_factory=dict)

    def measure(self, conversation: str, tools: Sequence[Json], messages: Sequence[Json]) -> tuple[int, int]:
        """Return the bytes of the previous prompt and how many of them this one begins with."""
        text = _dumps(tools) + _dumps(messages)[:-1]
        before = self.last.get(conversation, b"")
        self.last[conversation] = text
        return len(before), common_prefix(before, text)


def common_prefix(first: bytes, second: bytes) -> int:
    """Return how many bytes both begin with."""
    length = min(len(first), len(second))
    start = 0
    while start < length and first[start : start + _BLOCK] == second[start : start + _BLOCK]:
        start += _BLOCK
    end = min(start + _BLOCK, length)
    return next((index for index in range(start, end) if first[index] != second[index]), length)


def positions_in(messages: Sequence[Json]) -> tuple[int, ...]:
    """Return the numbers of the record lines (`[#12 user] …`) in the messages, each once, in order."""
    return positions_in_texts(text for message in messages for text in texts_of(message))


def positions_in_texts(texts: Iterable[str]) -> tuple[int, ...]:
    """Return the numbers of the record lines in the texts, each once, in order.

    Lines of an existing summary, which a merge is made of, are no record.
    """
    shown = (text for text in texts if "[#" in text)
    return tuple(sorted({int(number) for text in shown for number in _SHOWN.findall(_without_summaries(text))}))


def _without_summaries(text: str) -> str:
    summary = undelimited(EXISTING_TAG, text)
    return text.replace(summary, "") if summary else text


def _dumps(value: Sequence[Json]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


SUMMARISER_MARKER = SUMMARISER_SYSTEM_PROMPT[:60]
_NAMED = re.compile(r"\[script:([\w.-]{1,64})\]")
_FAILURES_THAT_ANSWER = (None, Failure.EMPTY, Failure.BAD_TOOL_JSON)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its reply, which is to be sent after a wait.

    `conversation` is to be handed to `ProviderDouble.leave` when it is over, `number` to `sent_whole` if it is whole.
    """

    reply: Reply
    conversation: str = ""
    wait_seconds: float = 0.0
    number: int = 0


@dataclass(slots=True, kw_only=True)
class ScriptedDouble:
    """What the doubles of all providers share: a script, the requests so far, and which are being answered.

    `url` is the base URL for clients.
    """

    url: str = ""
    keeps_prompts: bool = True
    requests: list[RequestRecord] = field(default_factory=list)
    _script: Script = field(default_factory=Script)
    _meter: PrefixMeter = field(default_factory=PrefixMeter)
    _busy: dict[str, int] = field(default_factory=dict)
    _number: int = 0

    def script(self, *steps: ScriptStep, line: str = ANY_TURN, then_default: bool = False) -> None:
        """Append steps to a line: of all turns, of `SUMMARISER`, or of the conversation `[script:NAME]`.

        A line once written must be used up; a request beyond its end is unexpected, unless `then_default`.
        """
        self._script.add(steps, line, then_default=then_default)

    def drop_line(self, line: str) -> None:
        """Forget the steps of a line that were not asked for."""
        self._script.lines.pop(line, None)

    def assert_script_used(self) -> None:
        """Fail if a step was not asked for, or a request found no step."""
        complaints = self._script.complaints()
        assert not complaints, "; ".join(complaints)

    def complaints(self) -> list[str]:
        """Return what `assert_script_used` would fail with."""
        return self._script.complaints()

    def reset(self) -> None:
        """Forget requests and script."""
        self.requests.clear()
        self._script, self._meter, self._number = Script(), PrefixMeter(), 0

    def count(self, body: Json) -> Json:
        """Count prompts as the model named in the body does."""
        raise LookupError(body["model"])

    def leave(self, conversation: str) -> None:
        """Note that an answer is over."""
        self._busy[conversation] = max(self._busy.get(conversation, 1) - 1, 0)

    def sent_whole(self, number: int) -> None:
        """Note that the answer to request `number` was sent to its end."""
        for index, record in enumerate(self.requests):
            if record.number == number:
                self.requests[index] = replace(record, is_whole=True)

    def _record(self, record: RequestRecord) -> None:
        self._number += 1
        self.requests.append(replace(record, number=self._number))

    def _record_refused(self, refusal: str, body: Json) -> None:
        """Record a request that was refused before it could be counted."""
        messages = body.get("messages")
        prompt = tuple(messages) if self.keeps_prompts and isinstance(messages, list) else ()
        self._record(RequestRecord(str(body.get("model")), Verdict.INVALID, refusal=refusal, prompt=prompt))

    def _begin(self, record: RequestRecord) -> None:
        """Record a request that is answered from now on."""
        self._record(record)
        self._busy[record.conversation] = self._busy.get(record.conversation, 0) + 1

    def _describe(self, system: str, tools: Sequence[Json], messages: Sequence[Json]) -> RequestRecord:
        """Return whose request it is, by its system prompt, and how it continues the one before."""
        is_summary = system.startswith(SUMMARISER_MARKER)
        named = None if is_summary else _NAMED.search(system)
        conversation = SUMMARISER if is_summary else named[1] if named else ""
        has_history = not is_summary and bool(conversation)
        previous, shared = self._meter.measure(conversation, tools, messages) if has_history else (0, 0)
        return RequestRecord(
            model="",
            conversation=conversation,
            line=SUMMARISER if is_summary else self._script.line_for(conversation),
            overlapped=has_history and self._busy.get(conversation, 0) > 0,
            previous_bytes=previous,
            shared_bytes=shared,
        )


@dataclass(slots=True, kw_only=True)
class ProviderDouble(ScriptedDouble):
    """The double of OpenAI's API. An answer begins after `answer_seconds`, a summary after `summary_seconds`."""

    answer_seconds: float = 0.0
    summary_seconds: float = 0.0
    embeddings: EmbeddingDouble = field(default_factory=EmbeddingDouble)

    def reset(self) -> None:
        """Forget requests and script."""
        ScriptedDouble.reset(self)
        self.embeddings.reset()

    def count(self, body: Json) -> Json:
        """`{model, tools, prompts: [[message, …], …]}`: the model's own count of each prompt, tools apart."""
        counting = find_model(body["model"]).counting
        tokens = [counting.in_messages(prompt) for prompt in body["prompts"]]
        return {"prompts": tokens, "tools": counting.in_tools(body.get("tools", []))}

    def receive(self, raw: bytes, authorization: str) -> Exchange:
        """Check, answer and record one request."""
        body: Json = {}
        try:
            if not authorization.startswith("Bearer "):
                raise _no_key()
            body = parse_body(raw)
            request = check_request(body)
        except Refused as refused:
            self._record_refused(refused.message, body)
            return Exchange(refusal_reply(refused))
        return self._serve(request)

    def receive_texts(self, raw: bytes, authorization: str) -> Reply:
        """Check and answer one request for embeddings."""
        try:
            if not authorization.startswith("Bearer "):
                raise _no_key()
            return self.embeddings.answer(parse_body(raw))
        except Refused as refused:
            return refusal_reply(refused)

    def _serve(self, request: ChatRequest) -> Exchange:
        record = self._described(request)
        try:
            check_window(request)
        except Refused as refused:
            self._record(replace(record, verdict=Verdict.OVER_WINDOW, refusal=refused.message))
            return Exchange(refusal_reply(refused))
        try:
            step = self._script.take(record.line) or default_step(request, is_summary=record.is_summary)
        except LookupError as error:
            self._record(replace(record, verdict=Verdict.FAILED, refusal=str(error)))
            return Exchange(refusal_reply(Refused(str(error), status=400, code="script_exhausted")))
        self._begin(replace(record, verdict=_verdict_of(step), refusal=step.failure.value if step.failure else ""))
        wait = self.summary_seconds if record.is_summary else self.answer_seconds
        return Exchange(step_reply(step, request, self._number), record.conversation, wait, self._number)

    def _described(self, request: ChatRequest) -> RequestRecord:
        return replace(
            self._describe(_system_text(request.messages), request.tools, request.messages),
            model=request.model.name,
            prompt_tokens=request.prompt_tokens,
            window_tokens=request.model.window_tokens,
            max_tokens=request.max_tokens,
            prompt=request.messages if self.keeps_prompts else (),
            settings=request.settings,
            tools=request.tools if self.keeps_prompts else (),
            positions=positions_in(request.messages),
        )


def _verdict_of(step: ScriptStep) -> Verdict:
    is_answered = step.refused is None and step.failure in _FAILURES_THAT_ANSWER
    return Verdict.ANSWERED if is_answered else Verdict.FAILED


def _system_text(messages: Sequence[Json]) -> str:
    first = messages[0]
    content = first.get("content") if first["role"] in {"system", "developer"} else ""
    return content if isinstance(content, str) else ""


def _no_key() -> Refused:
    return Refused(
        "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
        "(i.e. Authorization: Bearer YOUR_KEY).",
        status=401,
    )
