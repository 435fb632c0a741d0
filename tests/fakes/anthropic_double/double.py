"""The double itself: checks a request, takes the next step of its script, uses its cache, records it all."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fakes.anthropic_double.checks import Refused, blocks_of
from fakes.anthropic_double.messages_request import MessagesRequest, check_request, check_window, parse_body
from fakes.anthropic_double.replies import default_step, refusal_reply, step_reply
from fakes.anthropic_double.units import CacheUse, PromptCache, system_blocks, texts_of, units_of
from fakes.provider_double.chat_request import look_up_model
from fakes.provider_double.double import (
    Exchange,
    RequestRecord,
    ScriptedDouble,
    Verdict,
    positions_in_texts,
)
from fakes.provider_double.json_types import Json
from fakes.provider_double.replies import Reply, json_reply
from fakes.provider_double.script import Failure

_ANSWERING = (None, Failure.EMPTY, Failure.BAD_TOOL_JSON)
_HALF_ANSWERED = (*_ANSWERING, Failure.RESET, Failure.CLEAN_CUT, Failure.HANG_IN_ANSWER, Failure.ERROR_IN_STREAM)
NO_USE = CacheUse(read=0, written=0)


@dataclass(slots=True, kw_only=True)
class AnthropicDouble(ScriptedDouble):
    """The double of Anthropic's API."""

    _cache: PromptCache = field(default_factory=PromptCache)

    def reset(self) -> None:
        """Forget requests, script and cache."""
        ScriptedDouble.reset(self)
        self._cache = PromptCache()

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
            self._record_refused(refused.message, body)
            return Exchange(refusal_reply(refused))
        return self._serve(request)

    def count_tokens(self, raw: bytes, headers: Mapping[str, str]) -> Reply:
        """Answer `/v1/messages/count_tokens`; nothing is recorded."""
        try:
            _check_headers(headers)
            return json_reply({"input_tokens": check_request({**parse_body(raw), "max_tokens": 1}).prompt_tokens})
        except Refused as refused:
            return refusal_reply(refused)

    def _serve(self, request: MessagesRequest) -> Exchange:
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
            return Exchange(refusal_reply(Refused(str(error))))
        use = self._cache.use(request.model.name, request.units) if step.failure in _HALF_ANSWERED else NO_USE
        self._begin(
            replace(
                record,
                verdict=Verdict.ANSWERED if step.failure in _ANSWERING else Verdict.FAILED,
                refusal=step.failure.value if step.failure else "",
                cache_read_tokens=use.read,
                cache_written_tokens=use.written,
            )
        )
        return Exchange(step_reply(step, request, use, self._number), record.conversation, number=self._number)

    def _described(self, request: MessagesRequest) -> RequestRecord:
        body = request.body
        prompt = _prompt(body)
        tools = [_unmarked(tool) for tool in body.get("tools") or ()]
        return replace(
            self._describe("\n".join(texts_of(system_blocks(body))), tools, prompt),
            model=request.model.name,
            prompt_tokens=request.prompt_tokens,
            window_tokens=request.model.window_tokens,
            max_tokens=request.max_tokens,
            prompt=_raw_prompt(body) if self.keeps_prompts else (),
            tools=tuple(body.get("tools") or ()) if self.keeps_prompts else (),
            positions=positions_in_texts(text for message in prompt for text in texts_of(message["content"])),
            markers=request.markers,
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
