"""The double itself: checks a request, takes the next step of its script, uses its cache, records it all."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fakes.anthropic_double.cache import CacheUse, PromptCache
from fakes.anthropic_double.check_messages import blocks_of
from fakes.anthropic_double.messages_request import MessagesRequest, check_request, check_window, parse_body
from fakes.anthropic_double.refusals import Refused
from fakes.anthropic_double.replies import default_step, refusal_reply, step_reply
from fakes.anthropic_double.units import system_blocks, texts_of, units_of
from fakes.provider_double.double import SUMMARISER_MARKER, Exchange
from fakes.provider_double.json_types import Json
from fakes.provider_double.models import look_up_model
from fakes.provider_double.records import PrefixMeter, RequestRecord, Verdict, positions_in_texts, sent_whole
from fakes.provider_double.script import ANY_TURN, SUMMARISER, Failure, Script, ScriptStep
from fakes.provider_double.wire import Reply, json_reply

_NAMED = re.compile(r"\[script:([\w.-]{1,64})\]")
_ANSWERING = (None, Failure.EMPTY, Failure.BAD_TOOL_JSON)
_HALF_ANSWERED = (*_ANSWERING, Failure.RESET, Failure.CLEAN_CUT, Failure.HANG_IN_ANSWER, Failure.ERROR_IN_STREAM)
NO_USE = CacheUse(read=0, written=0)


@dataclass(frozen=True, slots=True)
class AnthropicConfig:
    """What the double keeps, and how it tells a summariser's request: by how its system prompt begins."""

    keeps_prompts: bool = True
    summariser_marker: str = SUMMARISER_MARKER


@dataclass(slots=True)
class AnthropicDouble:
    """State of one double. `url` is the base URL for clients (`http://127.0.0.1:PORT`, no path)."""

    config: AnthropicConfig = field(default_factory=AnthropicConfig)
    url: str = ""
    requests: list[RequestRecord] = field(default_factory=list)
    _script: Script = field(default_factory=Script)
    _cache: PromptCache = field(default_factory=PromptCache)
    _meter: PrefixMeter = field(default_factory=PrefixMeter)
    _busy: dict[str, int] = field(default_factory=dict)
    _number: int = 0

    def script(self, *steps: ScriptStep, line: str = ANY_TURN, then_default: bool = False) -> None:
        """Append steps to a line: of all turns, of `SUMMARISER`, or of the conversation `[script:NAME]`."""
        self._script.add(steps, line, then_default=then_default)

    def drop_line(self, line: str) -> None:
        """Forget the steps of a line that were not asked for."""
        self._script.lines.pop(line, None)

    def complaints(self) -> list[str]:
        """Return what `assert_script_used` would fail with."""
        return self._script.complaints()

    def assert_script_used(self) -> None:
        """Fail if a step was not asked for, or a request found no step."""
        complaints = self._script.complaints()
        assert not complaints, "; ".join(complaints)

    def reset(self) -> None:
        """Forget requests, script and cache."""
        self.requests.clear()
        self._script, self._cache, self._meter = Script(), PromptCache(), PrefixMeter()
        self._number = 0

    def count(self, body: Json) -> Json:
        """`{model, prompts: [{system, tools, messages}, …]}`: the model's own count of each prompt, tools included."""
        model = look_up_model(body["model"])
        assert model is not None, f"no model {body['model']!r}"
        counting = model.counting
        totals = [sum(unit.tokens for unit in units_of(prompt, counting)) for prompt in body["prompts"]]
        return {"prompts": [counting.reply_tokens + total for total in totals]}

    def receive(self, raw: bytes, headers: Mapping[str, str]) -> Exchange:
        """Check, answer and record one request."""
        body: Json = {}
        try:
            _check_headers(headers)
            body = parse_body(raw)
            request = check_request(body)
        except Refused as refused:
            self._record(self._unread(refused, body))
            return Exchange(refusal_reply(refused))
        return self._serve(request)

    def count_tokens(self, raw: bytes, headers: Mapping[str, str]) -> Reply:
        """Answer `/v1/messages/count_tokens`; nothing is recorded."""
        try:
            _check_headers(headers)
            return json_reply({"input_tokens": check_request({**parse_body(raw), "max_tokens": 1}).prompt_tokens})
        except Refused as refused:
            return refusal_reply(refused)

    def leave(self, conversation: str) -> None:
        """Note that an answer is over."""
        self._busy[conversation] = max(self._busy.get(conversation, 1) - 1, 0)

    def sent_whole(self, number: int) -> None:
        """Note that an answer was sent to its end."""
        sent_whole(self.requests, number)

    def _serve(self, request: MessagesRequest) -> Exchange:
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
            return Exchange(refusal_reply(Refused(str(error))))
        use = self._cache.use(request.model.name, request.units) if step.failure in _HALF_ANSWERED else NO_USE
        self._record(
            replace(
                record,
                verdict=Verdict.ANSWERED if step.failure in _ANSWERING else Verdict.FAILED,
                refusal=step.failure.value if step.failure else "",
                cache_read_tokens=use.read,
                cache_written_tokens=use.written,
            )
        )
        self._busy[record.conversation] = self._busy.get(record.conversation, 0) + 1
        return Exchange(step_reply(step, request, use, self._number), record.conversation, number=self._number)

    def _describe(self, request: MessagesRequest) -> RequestRecord:
        body = request.body
        system = "\n".join(texts_of(system_blocks(body)))
        is_summary = system.startswith(self.config.summariser_marker)
        named = None if is_summary else _NAMED.search(system)
        conversation = SUMMARISER if is_summary else named[1] if named else ""
        prompt = _prompt(body)
        has_history = not is_summary and bool(conversation)
        tools = [_unmarked(tool) for tool in body.get("tools") or ()]
        previous, shared = self._meter.measure(conversation, tools, prompt) if has_history else (0, 0)
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
            prompt=_raw_prompt(body) if self.config.keeps_prompts else (),
            tools=tuple(body.get("tools") or ()) if self.config.keeps_prompts else (),
            positions=positions_in_texts(text for message in prompt for text in texts_of(message["content"])),
            overlapped=has_history and self._busy.get(conversation, 0) > 0,
            previous_bytes=previous,
            shared_bytes=shared,
            markers=request.markers,
        )

    def _record(self, record: RequestRecord) -> None:
        self._number += 1
        self.requests.append(replace(record, number=self._number))

    def _unread(self, refused: Refused, body: Json) -> RequestRecord:
        """Return the record of a request that was refused before it could be counted."""
        messages = body.get("messages")
        return RequestRecord(
            number=0,
            at=time.time(),
            model=str(body.get("model")),
            conversation="",
            line="",
            verdict=Verdict.INVALID,
            refusal=refused.message,
            prompt_tokens=0,
            window_tokens=0,
            max_tokens=None,
            prompt=tuple(messages) if self.config.keeps_prompts and isinstance(messages, list) else (),
        )


def _check_headers(headers: Mapping[str, str]) -> None:
    if not headers.get("x-api-key") and not headers.get("authorization"):
        raise Refused("x-api-key header is required", status=401, type="authentication_error")
    if not headers.get("anthropic-version"):
        raise Refused("anthropic-version: header is required")


def _raw_prompt(body: Json) -> tuple[Json, ...]:
    """The prompt as it was sent, the system prompt first."""
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    return (*system, *body["messages"])


def _prompt(body: Json) -> tuple[Json, ...]:
    """The prompt as blocks without cache markers, which move from call to call, the system prompt first."""
    system = [{"role": "system", "content": [_unmarked(block) for block in system_blocks(body)]}]
    messages = (
        {"role": message["role"], "content": [_unmarked(block) for block in blocks_of(message)]}
        for message in body["messages"]
    )
    return (*system, *messages)


def _unmarked(block: Json) -> Json:
    return {name: value for name, value in block.items() if name != "cache_control"}
