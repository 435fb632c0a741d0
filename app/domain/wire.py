"""Messages and runs as JSON, for what is stored with them and in run events; `app.wire` has the shapes."""

from datetime import datetime

from app.domain.json_types import JsonValue
from app.domain.message import Block, Content, ImageBlock, Message, TextBlock, ToolCall
from app.domain.run import Run


def message_json(message: Message) -> dict[str, JsonValue]:
    """Return the wire form of a message."""
    return {
        "id": str(message.id),
        "position": message.position,
        "role": message.role.value,
        "content": content_json(message.content),
        "tool_calls": [tool_call_json(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "run_id": None if message.run_id is None else str(message.run_id),
        "author": message.author,
        "token_count": message.token_count,
        "source": message.source.value,
        "pinned": message.pinned,
        "created_at": _time_json(message.created_at),
        "metadata": dict(message.metadata),
    }


def content_json(content: Content) -> JsonValue:
    """Return text as a string, several blocks as a list of `{type: text | image, …}`."""
    if isinstance(content, str):
        return content
    return [_block_json(block) for block in content]


def content_from_json(value: JsonValue) -> Content:
    """Return the content that `content_json` rendered. Raises ValueError for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return tuple(_block_from_json(item) for item in value)
    raise ValueError("content must be a string or a list of blocks")


def tool_call_json(call: ToolCall) -> dict[str, JsonValue]:
    """Return the wire form of a tool call; `arguments` stays the text the model wrote."""
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def run_json(run: Run) -> dict[str, JsonValue]:
    """Return the wire form of a run; its input is not part of it, the stored user message is."""
    return {
        "id": str(run.id),
        "session_id": str(run.session_id),
        "status": run.status.value,
        "source": run.source.value,
        "author": run.author,
        "actor": run.actor,
        "created_at": _time_json(run.created_at),
        "started_at": _time_json(run.started_at),
        "finished_at": _time_json(run.finished_at),
        "attempt": run.attempt,
        "cancel_requested": run.cancel_requested,
        "usage": {"input_tokens": run.usage.input_tokens, "output_tokens": run.usage.output_tokens},
        "error": None if run.error is None else {"type": run.error.type, "detail": run.error.detail},
        "message_id": None if run.message_id is None else str(run.message_id),
    }


def _block_json(block: Block) -> dict[str, JsonValue]:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text}
        case ImageBlock(url=url, detail=detail):
            return {"type": "image", "url": url, "detail": detail}


def _block_from_json(value: JsonValue) -> Block:
    match value:
        case {"type": "text", "text": str(text)}:
            return TextBlock(text)
        case {"type": "image", "url": str(url), **rest}:
            return ImageBlock(url, str(rest.get("detail", "auto")))
        case _:
            raise ValueError("a block must be {type: text, text} or {type: image, url}")


def _time_json(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
