"""Conversations of any length for `benchmarks.planner`, with their counts stored as the service stores them."""

import functools
import itertools
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from benchmarks.replay_check import Said, said_in
from benchmarks.replay_data import chain
from benchmarks.replay_readers import load_datasets
from throughline.context.budget import make_budget
from throughline.context.context_input import ContextInput
from throughline.context.measure import count_message, count_system
from throughline.context.policy import ContextPolicy
from throughline.domain.ids import MessageId, SessionId
from throughline.domain.message import Message, NewMessage, Role, Source, ToolCall, text_of
from throughline.llm.counters import make_counter

SAMPLE = Path(__file__).parent / "data"
SAID_AT = datetime(2026, 1, 1, tzinfo=UTC)
SUMMARY = "## State\n" + "\n".join(
    f"- [#{line}] The passenger's reservation {line:06} was changed." for line in range(60)
)
CURSOR = 60
"""The summary stands for so many messages before."""

NEVER = 10**9


def conversation(size: int, dataset: str, share: float) -> ContextInput:
    """Return `size` messages after the cursor that take this share of the window, the user's new message the last."""
    counter = make_counter("tiktoken")
    rows = _rows(size, dataset)
    system = load_datasets(SAMPLE)["tau-bench"].system_prompt
    tokens = sum(row.token_count for row in rows) + count_system(f"{system}\n\n{SUMMARY}", counter.count)
    policy = ContextPolicy(max_messages_before_summary=NEVER, max_tokens_before_summary=NEVER)
    user = NewMessage(Role.USER, "And is there a window seat left?", Source.API)
    return ContextInput(
        policy=policy,
        budget=make_budget(policy, int(tokens / share)),
        factor=1.0,
        system_prompt=system,
        tools_tokens=0,
        summary=SUMMARY,
        summary_tokens=counter.count(SUMMARY),
        summary_through_position=CURSOR,
        history=rows,
        own=(),
        user=replace(user, token_count=count_message(user, counter.count), counter=counter.name),
        count=counter.count,
        counter_name=counter.name,
    )


def langchain_messages(inp: ContextInput) -> Iterator[BaseMessage]:
    """Yield the same messages as LangChain's, the new one last."""
    for row in inp.rows:
        match row.role:
            case Role.USER:
                yield HumanMessage(text_of(row.content))
            case Role.ASSISTANT:
                calls = [
                    {"id": call.id, "name": call.name, "args": json.loads(call.arguments)} for call in row.tool_calls
                ]
                yield AIMessage(text_of(row.content), tool_calls=calls)
            case Role.TOOL:
                yield ToolMessage(text_of(row.content), tool_call_id=row.tool_call_id or "")
    if inp.user is not None:
        yield HumanMessage(text_of(inp.user.content))


@functools.cache
def _rows(size: int, dataset: str) -> tuple[Message, ...]:
    said = list(itertools.islice(_said(dataset), size))
    while said[-1].calls:  # no call may be left without its result
        said.pop()
    return tuple(stored_message(item, CURSOR + number) for number, item in enumerate(said, 1))


def _said(dataset: str) -> Iterator[Said]:
    for turn in chain(load_datasets(SAMPLE)[dataset]):
        yield from said_in(turn)


def stored_message(said: Said, position: int) -> Message:
    """Return what was said as the service stores it, counted."""
    counter = make_counter("tiktoken")
    message = Message(
        id=MessageId(uuid.UUID(int=position)),
        session_id=SessionId(uuid.UUID(int=1)),
        position=position,
        role=Role(said.role),
        content=said.content,
        source=Source.API,
        created_at=SAID_AT,
        tool_calls=tuple(ToolCall(*call) for call in said.calls),
        tool_call_id=said.tool_call_id,
        name="tool" if said.tool_call_id else None,
    )
    return replace(message, token_count=count_message(message, counter.count), counter=counter.name)
