"""The provider double itself: checks a request, takes the next step of its script, records both."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fakes.provider_double.answers import default_step
from fakes.provider_double.chat_request import ChatRequest, check_request, check_window, parse_body
from fakes.provider_double.embeddings import EmbeddingDouble
from fakes.provider_double.json_types import Json
from fakes.provider_double.models import find_model
from fakes.provider_double.records import PrefixMeter, RequestRecord, Verdict, positions_in, sent_whole
from fakes.provider_double.refusals import Refused
from fakes.provider_double.replies import refusal_reply, step_reply
from fakes.provider_double.script import ANY_TURN, SUMMARISER, Failure, Script, ScriptStep
from fakes.provider_double.wire import Reply
from throughline.context.summaries.summary_prompt import SUMMARISER_SYSTEM_PROMPT

SUMMARISER_MARKER = SUMMARISER_SYSTEM_PROMPT[:60]
_NAMED = re.compile(r"\[script:([\w.-]{1,64})\]")
_FAILURES_THAT_ANSWER = (None, Failure.EMPTY, Failure.BAD_TOOL_JSON)


@dataclass(frozen=True, slots=True)
class DoubleConfig:
    """What the double keeps, and how slow it is; a summariser's request is told by how its system message begins.

    An answer begins after `answer_seconds`, a summary after `summary_seconds`.
    """

    keeps_prompts: bool = True
    summariser_marker: str = SUMMARISER_MARKER
    answer_seconds: float = 0.0
    summary_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its reply, which is to be sent after a wait.

    `conversation` is to be handed to `ProviderDouble.leave` when it is over, `number` to `sent_whole` if it is whole.
    """

    reply: Reply
    conversation: str = ""
    wait_seconds: float = 0.0
    number: int = 0


@dataclass(slots=True)
class ProviderDouble:
    """State of one double. `url` is the base URL for clients (`http://127.0.0.1:PORT/v1`)."""

    config: DoubleConfig = field(default_factory=DoubleConfig)
    url: str = ""
    requests: list[RequestRecord] = field(default_factory=list)
    embeddings: EmbeddingDouble = field(default_factory=EmbeddingDouble)
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
        self.embeddings.reset()
        self._script = Script()
        self._meter = PrefixMeter()
        self._number = 0

    def count(self, body: Json) -> Json:
        """`{model, tools, prompts: [[message, …], …]}`: the model's own count of each prompt, tools apart."""
        counting = find_model(body["model"]).counting
        tokens = [counting.in_messages(prompt) for prompt in body["prompts"]]
        return {"prompts": tokens, "tools": counting.in_tools(body.get("tools", []))}

    def receive(self, raw: bytes, authorization: str) -> Exchange:
        """Check, answer and record one request."""
        try:
            if not authorization.startswith("Bearer "):
                raise _no_key()
            body = parse_body(raw)
        except Refused as refused:
            self._record(_unread(refused))
            return Exchange(refusal_reply(refused))
        try:
            request = check_request(body)
        except Refused as refused:
            self._record(_unread(refused, body, keeps_prompt=self.config.keeps_prompts))
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

    def leave(self, conversation: str) -> None:
        """Note that an answer is over."""
        self._busy[conversation] = max(self._busy.get(conversation, 1) - 1, 0)

    def sent_whole(self, number: int) -> None:
        """Note that an answer was sent to its end."""
        sent_whole(self.requests, number)

    def _serve(self, request: ChatRequest) -> Exchange:
        record = self._describe(request)
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
        self._record(replace(record, verdict=_verdict_of(step), refusal=step.failure.value if step.failure else ""))
        self._busy[record.conversation] = self._busy.get(record.conversation, 0) + 1
        wait = self.config.summary_seconds if record.is_summary else self.config.answer_seconds
        return Exchange(step_reply(step, request, self._number), record.conversation, wait, self._number)

    def _describe(self, request: ChatRequest) -> RequestRecord:
        system = _system_text(request.messages)
        is_summary = system.startswith(self.config.summariser_marker)
        named = None if is_summary else _NAMED.search(system)
        conversation = SUMMARISER if is_summary else named[1] if named else ""
        has_history = not is_summary and bool(conversation)
        previous, shared = self._meter.measure(conversation, request.tools, request.messages) if has_history else (0, 0)
        return RequestRecord(
            number=0,
            at=time.time(),
            model=request.model.name,
            conversation=conversation,
            line=SUMMARISER if is_summary else self._script.line_for(conversation),
            verdict=Verdict.ANSWERED,
            refusal="",
            prompt_tokens=request.prompt_tokens,
            window_tokens=request.model.window_tokens,
            max_tokens=request.max_tokens,
            prompt=request.messages if self.config.keeps_prompts else (),
            settings=request.settings,
            tools=request.tools if self.config.keeps_prompts else (),
            positions=positions_in(request.messages),
            overlapped=has_history and self._busy.get(conversation, 0) > 0,
            previous_bytes=previous,
            shared_bytes=shared,
        )

    def _record(self, record: RequestRecord) -> None:
        self._number += 1
        self.requests.append(replace(record, number=self._number))


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


def _unread(refused: Refused, body: Json | None = None, *, keeps_prompt: bool = False) -> RequestRecord:
    """Return the record of a request that was refused before it could be counted."""
    messages = (body or {}).get("messages")
    prompt = tuple(messages) if keeps_prompt and isinstance(messages, list) else ()
    return RequestRecord(
        number=0,
        at=time.time(),
        model=str((body or {}).get("model")),
        conversation="",
        line="",
        verdict=Verdict.INVALID,
        refusal=refused.message,
        prompt_tokens=0,
        window_tokens=0,
        max_tokens=None,
        prompt=prompt,
    )
