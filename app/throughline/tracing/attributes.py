"""Names, kinds and attributes of spans, by OpenTelemetry's semantic conventions for generative AI and databases.

What the conventions do not name begins with `throughline.`. Texts of users are attributes only if `with_texts` is set.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

from opentelemetry.trace import SpanKind

from throughline.domain.errors import ThroughlineError
from throughline.domain.message import Content, ImageBlock, NewMessage, Role, ToolCall, blocks_of
from throughline.domain.prompt import AnswerComplete, PromptMessage, Usage
from throughline.domain.run import Run, RunStatus, user_message
from throughline.domain.summary import CompactionOutcome, CompactionResult
from throughline.domain.tool import ToolOutcome
from throughline.ports.tracing import (
    CompactionPart,
    EmbeddingPart,
    ModelCallPart,
    PartResult,
    StatementPart,
    StepPart,
    SummaryTrace,
    ToolCallPart,
    TracedPart,
    TurnEnd,
)

# Users' texts as span attributes, for operators who ask for them by a setting of their own.
#
# The JSON has the form of OpenTelemetry's conventions for `gen_ai.input.messages` and its relatives.

MOST_CHARACTERS = 50_000
"""Characters of text in one attribute. The newest messages of a prompt win, and the beginning of a long text."""

Part: TypeAlias = dict[str, str]
Said: TypeAlias = dict[str, object]


def input_messages(messages: Sequence[PromptMessage | NewMessage]) -> str:
    """Return the messages as JSON, without the oldest ones if all are too long."""
    left, chosen = MOST_CHARACTERS, list[Said]()
    for message in reversed(messages):
        if left <= 0:
            break
        parts = _parts(message, left)
        left -= sum(len(text) for part in parts for text in part.values())
        chosen.append({"role": message.role.value, "parts": parts})
    return _json(chosen[::-1])


def output_messages(answer: AnswerComplete) -> str:
    """Return the answer as JSON."""
    parts = [_text_part(answer.text[:MOST_CHARACTERS])] if answer.text else []
    parts += [_call_part(call, MOST_CHARACTERS) for call in answer.tool_calls]
    return _json([{"role": Role.ASSISTANT.value, "parts": parts, "finish_reason": answer.finish_reason}])


def system_instructions(system: str) -> str:
    """Return the system message as JSON."""
    return _json([_text_part(system[:MOST_CHARACTERS])])


def cut(text: str) -> str:
    """Return the beginning of a text that is an attribute of its own."""
    return text[:MOST_CHARACTERS]


def _parts(message: PromptMessage | NewMessage, most: int) -> list[Part]:
    if message.role is Role.TOOL:
        said = "".join(part["content"] for part in _content_parts(message.content, most))
        return [{"type": "tool_call_response", "id": message.tool_call_id or "", "response": said}]
    return [*_content_parts(message.content, most), *(_call_part(call, most) for call in message.tool_calls)]


def _content_parts(content: Content, most: int) -> list[Part]:
    blocks = blocks_of(content)
    return [_text_part("[image]" if isinstance(block, ImageBlock) else block.text[:most]) for block in blocks]


def _text_part(text: str) -> Part:
    return {"type": "text", "content": text}


def _call_part(call: ToolCall, most: int) -> Part:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments[:most]}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# Short names of database statements, made of their kind and their tables: `INSERT messages, UPDATE runs`.
#
# The names of spans are made here, so that no text of a statement and no parameter leaves the process.

MOST_TARGETS = 3
"""Tables that one name lists."""

KNOWN_STATEMENTS = 1_000
"""Statements whose names are kept; the service has fewer."""

_WRITE = re.compile(r"\b(insert into|(?<!for )(?<!key )(?<!do )update|delete from)\s+([a-z_]+)")
_READ = re.compile(r"(?<!epoch )\b(?:from|join)\s+([a-z_]+)\b(?!\s*\()")
_NAMED_QUERY = re.compile(r"\b([a-z_]+)(?: ?\([a-z_, ]+\))? as (?:not )?(?:materialized )?\(")
_FIRST_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True)
class StatementSummary:
    """The operation of a statement (`SELECT`, `INSERT`, …), and its name with the tables."""

    operation: str
    name: str


@lru_cache(maxsize=KNOWN_STATEMENTS)
def summarize_statement(sql: str) -> StatementSummary:
    """Return the summary of a statement: its writes, or else the first table that it reads."""
    text = sql.lower()
    writes = dict.fromkeys((verb.split()[0].upper(), table) for verb, table in _WRITE.findall(text))
    if writes:
        listed = [f"{verb} {table}" for verb, table in writes][:MOST_TARGETS]
        return StatementSummary(next(iter(writes))[0], ", ".join(listed))
    word = _FIRST_WORD.search(text)
    operation = word.group().upper() if word else "UNKNOWN"
    if operation not in {"SELECT", "WITH"}:
        return StatementSummary(operation, operation)
    named = set(_NAMED_QUERY.findall(text))
    table = next((name for name in _READ.findall(text) if name not in named), "")
    return StatementSummary("SELECT", f"SELECT {table}".rstrip())


Value: TypeAlias = str | int | float | bool | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, Value]

PROVIDERS = {
    "azure_openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "ibm": "ibm.watsonx.ai",
    "mistralai": "mistral_ai",
    "xai": "x_ai",
}
"""The conventions' names of providers that have another one here; all others have the same."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a span is called, its kind, and the attributes it begins with."""

    name: str
    attributes: Attributes
    kind: SpanKind = SpanKind.INTERNAL


@dataclass(frozen=True, slots=True)
class Result:
    """Further attributes of a span, and the type of the error if the part failed."""

    attributes: Attributes
    error: str = ""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What all spans of a trace share: the conversation, and whether users' texts are recorded."""

    conversation_id: str
    with_texts: bool


def describe_turn(run: Run, *, with_texts: bool) -> Description:
    """Return the description of a turn's root span."""
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": run.agent,
        "gen_ai.conversation.id": str(run.session_id),
        "throughline.run.id": str(run.id),
        "throughline.run.attempt": run.attempt,
        "throughline.source": run.source.value,
    }
    if with_texts:
        attributes["gen_ai.input.messages"] = input_messages([user_message(run)])
    return Description(f"invoke_agent {run.agent}", attributes)


def describe_summary(summary: SummaryTrace) -> Description:
    """Return the description of the root span of a summary that no turn waits for."""
    attributes = {"gen_ai.conversation.id": str(summary.session_id), "gen_ai.agent.name": summary.agent}
    return Description(summary.name, attributes)


def describe(part: TracedPart, trace: TraceContext) -> Description:
    """Return the description of a span below the root."""
    match part:
        case StepPart(name=name):
            return Description(name, {})
        case CompactionPart(trigger=trigger, action=action):
            names = {"throughline.compaction.trigger": trigger, "throughline.compaction.action": action}
            return Description("compaction", names)
        case ModelCallPart():
            return _describe_call(part, trace)
        case EmbeddingPart(model=model):
            return Description(*_named_call("embeddings", model, trace), SpanKind.CLIENT)
        case ToolCallPart(call=call):
            return _describe_tool(call, trace)
        case StatementPart(sql=sql):
            summary = summarize_statement(sql)
            statement: Attributes = {
                "db.system.name": "postgresql",
                "db.operation.name": summary.operation,
                "db.query.summary": summary.name,
            }
            return Description(summary.name, statement, SpanKind.CLIENT)


def read_result(result: PartResult, *, with_texts: bool) -> Result:
    """Return the attributes of a result."""
    match result:
        case AnswerComplete():
            return Result(_of_answer(result, with_texts=with_texts))
        case CompactionResult():
            failure = "compaction_failed" if result.outcome is CompactionOutcome.FAILED else ""
            return Result(_of_compaction(result), failure)
        case ToolOutcome(text=text, is_error=is_error):
            texts = {"gen_ai.tool.call.result": cut(text)} if with_texts else {}
            return Result(texts, "tool_error" if is_error else "")
        case TurnEnd():
            return _of_turn(result, with_texts=with_texts)


def error_type(error: BaseException) -> str:
    """Return the error's code, PostgreSQL's state or the name of its class; never its text, which may be a user's."""
    if isinstance(error, ThroughlineError):
        return error.code
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else type(error).__name__


def _describe_call(part: ModelCallPart, trace: TraceContext) -> Description:
    name, call = _named_call("chat", part.model, trace)
    attributes: dict[str, Value] = {
        **call,
        "gen_ai.request.max_tokens": part.request.max_output_tokens,
        "gen_ai.request.stream": True,
        "throughline.call.purpose": part.purpose.value,
    }
    for parameter in ("temperature", "top_p", "seed"):
        value = getattr(part.request.parameters, parameter)
        if value is not None:
            attributes[f"gen_ai.request.{parameter}"] = value
    attributes |= _server(part.address)
    if trace.with_texts:
        prompt = part.request.prompt
        attributes["gen_ai.input.messages"] = input_messages(prompt.messages)
        attributes["gen_ai.system_instructions"] = system_instructions(prompt.system)
    return Description(name, attributes, SpanKind.CLIENT)


def _named_call(operation: str, full_name: str, trace: TraceContext) -> tuple[str, Attributes]:
    """Return the name of a model call's span, and the attributes that all such calls have."""
    provider, has_provider, rest = full_name.partition(":")
    model = rest if has_provider else full_name
    return f"{operation} {model}", {
        "gen_ai.operation.name": operation,
        "gen_ai.conversation.id": trace.conversation_id,
        "gen_ai.provider.name": PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model,
    }


def _server(address: str) -> Attributes:
    parts = urlsplit(address)
    if not parts.hostname:
        return {}
    return {"server.address": parts.hostname} | ({"server.port": parts.port} if parts.port else {})


def _describe_tool(call: ToolCall, trace: TraceContext) -> Description:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": trace.conversation_id,
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
    }
    if trace.with_texts:
        attributes["gen_ai.tool.call.arguments"] = cut(call.arguments)
    return Description(f"execute_tool {call.name}", attributes)


def _of_answer(answer: AnswerComplete, *, with_texts: bool) -> Attributes:
    attributes: dict[str, Value] = {
        **_of_usage(answer.usage),
        "gen_ai.response.finish_reasons": (answer.finish_reason,),
    }
    if answer.model:
        attributes["gen_ai.response.model"] = answer.model
    if with_texts:
        attributes["gen_ai.output.messages"] = output_messages(answer)
    return attributes


def _of_usage(usage: Usage) -> Attributes:
    """Return the reported tokens and the cost; what is not known has no attribute."""
    counts = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "throughline.cost_usd": None if usage.cost_usd is None else float(usage.cost_usd),
    }
    return {name: count for name, count in counts.items() if count is not None}


def _of_compaction(result: CompactionResult) -> Attributes:
    return {
        "throughline.compaction.outcome": result.outcome.value,
        "throughline.compaction.tokens_before": result.tokens_before,
        "throughline.compaction.tokens_after": result.tokens_after,
    }


def _of_turn(end: TurnEnd, *, with_texts: bool) -> Result:
    attributes: dict[str, Value] = {"throughline.run.status": end.status.value, **_of_usage(end.outcome.usage)}
    if with_texts and end.outcome.answer is not None:
        attributes["gen_ai.output.messages"] = input_messages([end.outcome.answer])
    failure = end.outcome.error.type if end.outcome.error is not None else RunStatus.FAILED.value
    return Result(attributes, failure if end.status is RunStatus.FAILED else "")
