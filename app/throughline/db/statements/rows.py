"""Conversion between rows and domain values: the only module that knows the column layout of the main tables."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from throughline.db.connection.pool import Row
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import JsonObject, JsonValue, MessageId, RunId, SessionId
from throughline.domain.elicitation import Elicitation, InputGiven, InputRequest, PausedCall
from throughline.domain.errors import LeaseLost, NotFound
from throughline.domain.message import (
    Block,
    Content,
    ImageBlock,
    Message,
    NewMessage,
    Role,
    Source,
    TextBlock,
    ToolCall,
)
from throughline.domain.prompt import NO_OVERRIDES, Overrides, ResponseFormat, ToolSpec, Usage
from throughline.domain.run import Lease, Run, RunError, RunInput, RunStatus, user_message_id
from throughline.domain.session import Session
from throughline.domain.tool import ApprovalDecision, AwaitedCall, Resolution, Wait, WaitKind
from throughline.domain.usage_report import ModelCall

Stored = Mapping[str, Any]  # Any: as `wait_data` and `client_tools_data` write it


def wait_data(wait: Wait) -> JsonObject:
    """Return the stored form of a wait. Its end is stored in the column `waits_until`."""
    return {
        "fence": wait.fence,
        "calls": [_awaited_data(awaited) for awaited in wait.calls],
        "resolutions": [asdict(resolution) for resolution in wait.resolutions],
    }


def wait_from(stored: Stored | None, until: datetime | None) -> Wait | None:
    """Return the wait from the columns `wait` and `waits_until`; None if the run has none."""
    if stored is None or until is None:
        return None
    return Wait(
        calls=tuple(_awaited_from(call) for call in stored["calls"]),
        until=until,
        fence=stored["fence"],
        resolutions=tuple(_resolution_from(given) for given in stored["resolutions"]),
    )


def client_tools_data(tools: Sequence[ToolSpec]) -> dict[str, JsonValue]:
    """Return the members that are stored with the input: none without client tools."""
    return {"client_tools": [asdict(tool) for tool in tools]} if tools else {}


def client_tools_from(stored: Stored) -> tuple[ToolSpec, ...]:
    """Return the client tools in a stored input."""
    return tuple(ToolSpec(**tool) for tool in stored.get("client_tools", ()))


def _awaited_data(awaited: AwaitedCall) -> dict[str, JsonValue]:
    paused = {} if awaited.paused is None else {"paused": asdict(awaited.paused)}
    server = {} if awaited.server is None else {"server": awaited.server}
    return {**asdict(awaited.call), "kind": awaited.kind.value, **paused, **server}


def _awaited_from(stored: Stored) -> AwaitedCall:
    call = ToolCall(id=stored["id"], name=stored["name"], arguments=stored["arguments"])
    paused = stored.get("paused")
    if paused is None:
        return AwaitedCall(call, WaitKind(stored["kind"]), server=stored.get("server"))
    return AwaitedCall(call, WaitKind(stored["kind"]), _paused_from(paused), paused["server"])


def _paused_from(stored: Stored) -> PausedCall:
    asked = stored["elicitation"]
    elicitation = Elicitation(
        requests=tuple(InputRequest(**one) for one in asked["requests"]),
        given=tuple(InputGiven(**one) for one in asked["given"]),
        earlier=tuple(InputGiven(**one) for one in asked["earlier"]),
        state=asked["state"],
        ended_as=asked["ended_as"],
    )
    return PausedCall(**{**stored, "call": ToolCall(**stored["call"]), "elicitation": elicitation})


def _resolution_from(stored: Stored) -> Resolution:
    decision = stored["decision"]
    return Resolution(**{**stored, "decision": None if decision is None else ApprovalDecision(decision)})


def overrides_data(overrides: Overrides) -> dict[str, JsonValue]:
    """Return the members that are stored with the input: none if nothing is overridden."""
    if overrides == NO_OVERRIDES:
        return {}
    given = {name: value for name, value in asdict(overrides).items() if value is not None and value is not False}
    return {"overrides": given}


def overrides_from(stored: JsonObject) -> Overrides:
    """Return the overrides in a stored input."""
    given = stored.get("overrides")
    if not isinstance(given, dict):
        return NO_OVERRIDES
    wanted, allowed = given.get("response_format"), given.get("allowed_tools")
    response_format = ResponseFormat(**wanted) if isinstance(wanted, dict) else None  # type: ignore[arg-type]  # as stored
    allowed_tools = tuple(allowed) if isinstance(allowed, list) else None
    return Overrides(**{**given, "response_format": response_format, "allowed_tools": allowed_tools})  # type: ignore[arg-type]  # as stored


def columns_of(kind: type[Any], alias: str, prefix: str = "") -> str:  # Any: a dataclass
    """Return the columns of the table `alias` that the fields of `kind` name; a `prefix` renames them."""
    names = kind.__dataclass_fields__
    return ", ".join(f"{alias}.{name} as {prefix}{name}" if prefix else f"{alias}.{name}" for name in names)


def fields_from(kind: type[Any], row: Row, prefix: str = "") -> dict[str, Any]:  # Any: a dataclass, values as stored
    """Return the values of the fields of `kind` in a row with its `columns_of`, by name.

    `fields` of the standard library makes a new tuple at each call, which would double the time of a row.
    """
    return {name: row[f"{prefix}{name}"] for name in kind.__dataclass_fields__}


SESSION_COLUMNS = columns_of(Session, "s")


@dataclass(frozen=True, slots=True)
class WrittenColumn:
    """A column of `messages` that is stored with each message: its type, and its value as a parameter."""

    type: str
    written: Callable[[NewMessage], object]

    @property
    def parameter_type(self) -> str:
        """The type of the parameter: JSON is passed as text."""
        return "text" if self.is_json else self.type

    @property
    def is_json(self) -> bool:
        """Whether the parameter has to be cast."""
        return self.type in {"json", "jsonb"}


WRITTEN_COLUMNS: Mapping[str, WrittenColumn] = {
    "role": WrittenColumn("text", lambda message: message.role.value),
    "content": WrittenColumn("text", lambda message: message.content if isinstance(message.content, str) else None),
    "content_blocks": WrittenColumn("json", lambda message: _blocks_json(message.content)),
    "source": WrittenColumn("text", lambda message: message.source.value),
    "tool_calls": WrittenColumn("jsonb", lambda message: _calls_json(message.tool_calls)),
    "tool_call_id": WrittenColumn("text", lambda message: message.tool_call_id),
    "name": WrittenColumn("text", lambda message: message.name),
    "author": WrittenColumn("text", lambda message: message.author),
    "token_count": WrittenColumn("integer", lambda message: message.token_count),
    "counter": WrittenColumn("text", lambda message: message.counter),
    "metadata": WrittenColumn("jsonb", lambda message: to_json(message.metadata)),
}
"""The columns that a new one is added to. All statements that store or copy messages are made from it; `message_from`
reads it."""

MESSAGE_COLUMNS = ", ".join(
    f"m.{name}" for name in ("id", "session_id", "position", "run_id", "created_at", *WRITTEN_COLUMNS)
)
MESSAGE_TEXT = """
    coalesce(m.content, (
        select string_agg(b.block ->> 'text', E'\\n' order by b.place)
        from jsonb_array_elements(cast(m.content_blocks as jsonb)) with ordinality as b (block, place)
        where b.block ->> 'type' = 'text'), '')"""
"""SQL expression over `messages m`: the message's text without its images."""

PINNED = "m.id in (select p.message_id from message_pins p where p.session_id = :session_id) as pinned"
"""Column `pinned` for statements with the parameter `session_id`; reads the session's pins once, not per row."""

RUN_COLUMNS = """
    r.id, r.session_id, r.owner_id, r.agent, r.seq, r.status, r.input, r.source, r.created_at, r.author, r.actor,
    r.attempt, r.cancel_requested, r.input_tokens, r.output_tokens, r.cached_tokens,
    r.cache_write_tokens, r.reasoning_tokens, r.cost_usd, r.error_type, r.error_detail,
    r.provider_message, r.context, r.started_at, r.finished_at, r.fence, r.wait, r.waits_until, r.wait_count"""
_RUN_FIELDS = tuple(field.name for field in fields(Run) if field.name not in {"usage", "error"})
"""The fields of a run that are one column each."""

MOST_TOKENS = 2**31 - 1
USAGE_COLUMNS = "input_tokens, output_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, cost_usd"
USER_MESSAGE_ID = "(select u.id from messages u where u.run_id = r.id and u.step = 'user')"
"""SQL expression over `runs r`: the id of the run's stored user message, null before it is stored."""
ANSWER_ID = "(select a.id from messages a where a.run_id = r.id and a.step = 'answer')"
MESSAGE_IDS = f"{ANSWER_ID} as message_id, {USER_MESSAGE_ID} as user_message_id"
NO_MESSAGE_IDS = "cast(null as uuid) as message_id, cast(null as uuid) as user_message_id"


_encode = json.JSONEncoder(ensure_ascii=False).encode
"""A reusable JSON encoder; `json.dumps` would create one per call."""


def to_json(value: "JsonObject | JsonValue") -> str:
    """Return the JSON text of a value, for a json or jsonb parameter."""
    return _encode(value)


def prefixed(columns: str, alias: str, prefix: str) -> str:
    """Return a column list such as MESSAGE_COLUMNS for the table `alias`, each column renamed with `prefix`."""
    names = (column.strip().partition(".")[2] for column in columns.split(","))
    return ", ".join(f"{alias}.{name} as {prefix}{name}" for name in names)


def content_data(content: Content) -> JsonValue:
    """Return the stored form of a content: text unchanged, blocks as a list of `{type: text | image, …}`."""
    return content if isinstance(content, str) else [_block_data(block) for block in content]


def content_from(stored: JsonValue) -> Content:
    """Return the content from the form that `content_data` returns. Raises ValueError for anything else."""
    match stored:
        case str():
            return stored
        case list():
            return tuple(_block_from(item) for item in stored)
        case _:
            raise ValueError("content must be a string or a list of blocks")


def session_from(row: Row, prefix: str = "") -> Session:
    """Return the session in a row with SESSION_COLUMNS, each column name preceded by `prefix`."""
    values = fields_from(Session, row, prefix)
    return Session(**{**values, "source": Source(values["source"])})


def message_from(row: Row, prefix: str = "") -> Message:
    """Return the message in a row with MESSAGE_COLUMNS, each column name preceded by `prefix`.

    Without the column of PINNED the message counts as not pinned.
    """
    content, run_id = row[f"{prefix}content"], row[f"{prefix}run_id"]
    return Message(
        id=MessageId(row[f"{prefix}id"]),
        session_id=SessionId(row[f"{prefix}session_id"]),
        position=row[f"{prefix}position"],
        role=Role(row[f"{prefix}role"]),
        content=content_from(row[f"{prefix}content_blocks"]) if content is None else content,
        source=Source(row[f"{prefix}source"]),
        created_at=row[f"{prefix}created_at"],
        tool_calls=tuple(ToolCall(**call) for call in row[f"{prefix}tool_calls"]),
        tool_call_id=row[f"{prefix}tool_call_id"],
        name=row[f"{prefix}name"],
        run_id=None if run_id is None else RunId(run_id),
        author=row[f"{prefix}author"],
        token_count=row[f"{prefix}token_count"],
        counter=row[f"{prefix}counter"],
        metadata=row[f"{prefix}metadata"],
        pinned=bool(row.get("pinned")),
    )


def message_parameters(message: NewMessage) -> dict[str, object]:
    """Return the parameters for inserting a message, with the names of its columns."""
    return {name: column.written(message) for name, column in WRITTEN_COLUMNS.items()}


def run_from(row: Row, prefix: str = "") -> Run:
    """Return the run in a row with RUN_COLUMNS and MESSAGE_IDS, each column name preceded by `prefix`."""
    values = {name: row[f"{prefix}{name}"] for name in _RUN_FIELDS}
    read = {
        "status": RunStatus(values["status"]),
        "input": _input_from(values["input"]),
        "source": Source(values["source"]),
        "user_message_id": values["user_message_id"] or user_message_id(values["id"]),
        "usage": usage_from(row, prefix),
        "error": error_from(row, prefix),
        "wait": wait_from(values["wait"], row[f"{prefix}waits_until"]),
    }
    return Run(**{**values, **read})


def usage_parameters(usage: Usage) -> dict[str, object]:
    """Return the parameters for USAGE_COLUMNS. Counts beyond their columns are stored as the largest that fits."""
    given = {name: getattr(usage, name) for name in USAGE_COLUMNS.split(", ")}
    return {name: min(value, MOST_TOKENS) if isinstance(value, int) else value for name, value in given.items()}


def usage_from(row: Row, prefix: str = "") -> Usage:
    """Return the usage in a row with USAGE_COLUMNS, each column name preceded by `prefix`."""
    return Usage(**{name: row[f"{prefix}{name}"] for name in USAGE_COLUMNS.split(", ")})


def error_from(row: Row, prefix: str = "") -> RunError | None:
    """Return the error in a row with its three columns, each column name preceded by `prefix`; None without one."""
    kind = row[f"{prefix}error_type"]
    if kind is None:
        return None
    return RunError(kind, row[f"{prefix}error_detail"] or "", row[f"{prefix}provider_message"] or "")


def input_json(run_input: RunInput) -> str:
    """Return the JSON text for the column `runs.input`."""
    message = {"content": content_data(run_input.content), "metadata": dict(run_input.metadata)}
    brought = {"steps_brought": run_input.steps_brought} if run_input.steps_brought else {}
    echo = {"echo": dict(run_input.echo)} if run_input.echo else {}
    tools = client_tools_data(run_input.client_tools)
    return to_json(message | overrides_data(run_input.overrides) | tools | brought | echo)


def _input_from(stored: Mapping[str, Any]) -> RunInput:  # Any: as `input_json` writes it
    return RunInput(
        content_from(stored["content"]),
        stored["metadata"],
        overrides_from(stored),
        client_tools_from(stored),
        stored.get("steps_brought", 0),
        stored.get("echo", {}),
    )


def _block_data(block: Block) -> JsonValue:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text}
        case ImageBlock(url=url, detail=detail):
            return {"type": "image", "url": url, "detail": detail}


def _block_from(stored: JsonValue) -> Block:
    match stored:
        case {"type": "text", "text": str(text)}:
            return TextBlock(text)
        case {"type": "image", "url": str(url), **rest}:
            return ImageBlock(url, str(rest.get("detail", "auto")))
        case _:
            raise ValueError("a block must be {type: text, text} or {type: image, url}")


def _blocks_json(content: Content) -> str | None:
    return None if isinstance(content, str) else to_json(content_data(content))


def _calls_json(calls: tuple[ToolCall, ...]) -> str:
    return to_json([_call_data(call) for call in calls]) if calls else "[]"


def _call_data(call: ToolCall) -> JsonValue:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def session_not_found(session_id: SessionId) -> NotFound:
    """Return the error for a session that is missing or another user's."""
    return NotFound(f"There is no session {session_id}.")


def run_not_found(run_id: RunId) -> NotFound:
    """Return the error for a run that is missing or another user's."""
    return NotFound(f"There is no run {run_id}.")


def lease_lost(lease: Lease) -> LeaseLost:
    """Return the error for a write to a run whose lease was lost."""
    return LeaseLost(f"The run {lease.run_id} is no longer held with fence {lease.fence}: nothing was stored.")


INSERT_REASONING = """
    insert into message_reasoning (message_id, text, is_shown)
    select {message_id}, t.text, t.is_shown from {source} cross join json_to_recordset(cast(:reasoning as json)) as t (
        text text, is_shown boolean)
"""
"""Insert the reasoning in the parameter `reasoning`, if any, for the message of each row of `source`."""

INSERT_RETURNED = """
    insert into returned_reasoning (run_id, message_id, model, parts)
    select {run_id}, {message_id}, t.model, t.parts
    from {source} cross join json_to_recordset(cast(:returned as json)) as t (model text, parts json)
"""
"""Insert the parts in the parameter `returned`, if any, for the run and the message of each row of `source`."""


def reasoning_parameters(message: NewMessage) -> dict[str, str]:
    """Return the parameters `reasoning` and `returned` for the message."""
    reasoning = message.reasoning
    if reasoning is None:
        return {"reasoning": "[]", "returned": "[]"}
    text: JsonObject = {"text": reasoning.text, "is_shown": reasoning.is_shown}
    parts: JsonObject = {"model": reasoning.model, "parts": [dict(part) for part in reasoning.parts]}
    return {
        "reasoning": to_json([dict(text)] if reasoning.text else []),
        "returned": to_json([dict(parts)] if reasoning.parts else []),
    }


INSERT_CALLS = """
    insert into model_calls (owner_id, session_id, run_id, agent, id, model, purpose, input_tokens, output_tokens,
        cached_tokens, cache_write_tokens, reasoning_tokens, cost_usd)
    select {payer}, c.* from {source} cross join json_to_recordset(cast(:model_calls as json)) as c (
        id uuid, model text, purpose text, input_tokens integer, output_tokens integer, cached_tokens integer,
        cache_write_tokens integer, reasoning_tokens integer, cost_usd numeric)
"""
"""Insert the calls of the parameter `model_calls` for each row of `source`.

`payer` are the columns of that row with owner, session, run and agent.
"""


def call_parameters(calls: Sequence[ModelCall]) -> dict[str, str]:
    """Return the parameter `model_calls` of INSERT_CALLS."""
    return {
        "model_calls": to_json([
            {"id": str(new_id()), "model": call.model, "purpose": call.purpose.value, **_json(call.usage)}
            for call in calls
        ])
    }


def _json(usage: Usage) -> Mapping[str, str | int | None]:
    """Return the usage as JSON. Money is text there, so that no digit is lost."""
    cost = None if usage.cost_usd is None else str(usage.cost_usd)
    return {**usage_parameters(usage), "cost_usd": cost}  # type: ignore[dict-item]  # counts besides
