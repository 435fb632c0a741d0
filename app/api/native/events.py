"""Run events as the native API shows them: JSON, server-sent events, and the problem that an unhappy end is."""

from fastapi import Response

from app.api.http.errors import RUN_CANCELLED, problem
from app.api.http.responses import json_bytes
from app.domain.events import (
    AnswerReset,
    CompactionFinished,
    CompactionStarted,
    Event,
    MessageCompleted,
    MessageDelta,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolAnswered,
    ToolCalled,
)
from app.domain.json_types import JsonObject, JsonValue
from app.domain.message import Message, text_of
from app.domain.run import RunError, RunStatus
from app.domain.wire import message_json, run_json, tool_call_json

UNKNOWN_ERROR = RunError("internal_error", "The run failed. The message is kept; send it again.")

# Legal inside JSON strings, but taken for line ends by many readers of the stream.
LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def render_event(event: RunEvent) -> bytes:
    """Return one event as it goes over the wire: id, name, and JSON in one line."""
    data = json_bytes(dict(event_json(event.event)))
    for raw, escaped in LINE_ENDS:
        data = data.replace(raw, escaped)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.value.encode(), data)


def event_json(event: Event) -> JsonObject:
    """Return the data of an event."""
    match event:
        case RunStarted(run=run):
            return {"run": run_json(run)}
        case MessageCompleted(message=message):
            return {"message": message_json(message)}
        case ToolCalled(call=call):
            return tool_call_json(call)
        case ToolAnswered(message=message):
            return _result_json(message)
        case RunEnded():
            return ending_json(event)
        case _:
            return _progress_json(event)


def ending_json(ended: RunEnded) -> dict[str, JsonValue]:
    """Return the data of a run's last event: for a completed one what `POST …/messages` answers."""
    run, answer = ended.run, None if ended.answer is None else message_json(ended.answer)
    match run.status:
        case RunStatus.SUCCEEDED:
            context = None if run.context is None else dict(run.context)
            return {"run": run_json(run), "message": answer, "context": context}
        case RunStatus.CANCELLED:
            return {"run": run_json(run), "message": answer}
        case _:
            error = run.error or UNKNOWN_ERROR
            return {"run": run_json(run), "error": {"type": error.type, "detail": error.detail}}


def turn_problem(ended: RunEnded) -> Response:
    """Return the problem document of a run that failed or was cancelled."""
    more: dict[str, JsonValue] = {"run_id": str(ended.run.id), "run": run_json(ended.run)}
    if ended.run.status is RunStatus.CANCELLED:
        more["message"] = None if ended.answer is None else message_json(ended.answer)
        return problem(RUN_CANCELLED, "The run was cancelled before it had an answer. The message is kept.", more=more)
    error = ended.run.error or UNKNOWN_ERROR
    return problem(error.type, error.detail, more=more)


def _result_json(message: Message) -> dict[str, JsonValue]:
    """A result is shown as it is stored, which may not be as the tool gave it."""
    return {
        "id": message.tool_call_id,
        "name": message.name,
        "content": text_of(message.content),
        "is_error": message.metadata.get("is_error") is True,
    }


def _progress_json(event: MessageDelta | AnswerReset | CompactionStarted | CompactionFinished) -> JsonObject:
    match event:
        case MessageDelta(text=text):
            return {"text": text}
        case AnswerReset(attempt=attempt):
            return {"attempt": attempt}
        case CompactionStarted(cause=cause, tokens=tokens):
            return {"cause": cause, "tokens": tokens}
        case CompactionFinished():
            return _compaction_json(event)


def _compaction_json(finished: CompactionFinished) -> JsonObject:
    return {
        "cause": finished.cause,
        "outcome": finished.outcome,
        "detail": finished.detail,
        "fired": list(finished.fired),
        "tokens_before": finished.tokens_before,
        "tokens_after": finished.tokens_after,
        "through_position": finished.through_position,
    }
