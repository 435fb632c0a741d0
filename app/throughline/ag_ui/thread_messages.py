"""The messages of a session as those of an AG-UI thread."""

from dataclasses import dataclass

from throughline.chat_protocols.follow_part import split_run
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.basic_types import JsonObject, JsonValue, MessageId, SessionId
from throughline.domain.message import CLIENT_MESSAGE_ID, Block, Content, Message, Role, TextBlock, text_of
from throughline.domain.run import Run, user_message
from throughline.http.call import Call
from throughline.wire.json_shape import JsonDict

MAX_SNAPSHOT_MESSAGES = 500
"""Newest messages of a session that a snapshot has. Nothing older is lost: other interfaces read all of it."""

PAGE = 200


async def read_thread(call: Call, session_id: SessionId) -> list[Message]:
    """Return the newest messages of the session, oldest first, beginning with a message of the user."""
    messages: list[Message] = []
    before: int | None = None
    while len(messages) < MAX_SNAPSHOT_MESSAGES:
        query = MessageQuery(before=before, limit=min(PAGE, MAX_SNAPSHOT_MESSAGES - len(messages)), order="desc")
        page = await call.services.database.messages.list_messages(call.owner_id, session_id, query)
        messages += page.items
        if page.next_cursor is None:
            return messages[::-1]
        before = int(page.next_cursor)
    while messages and messages[-1].role is not Role.USER:
        messages.pop()
    return messages[::-1]


@dataclass(frozen=True, slots=True)
class ThreadMessages:
    """The messages of a thread, in AG-UI's form, and the ids of those that are stored."""

    shown: list[JsonDict]
    complete: frozenset[MessageId]


async def read_thread_until_part(call: Call, run: Run, part: int, complete: frozenset[MessageId]) -> ThreadMessages:
    """Return the thread's messages without those that the part of the run has made, except for those `complete`.

    If the thread has gone on since the run, all of them are complete. The run's own message of the user is always among
    the messages, also before it is stored.
    """
    stored = await read_thread(call, run.session_id)
    parts = split_run(run, [message for message in stored if message.run_id == run.id])
    made = {message.id for later in parts[part:] for message in later.made}
    if stored and stored[-1].run_id != run.id and made:
        complete = frozenset(made)
    kept = [message for message in stored if message.id not in made - complete]
    shown = [message_json(message) for message in kept]
    if all(message.id != run.user_message_id for message in stored):
        new = user_message(run)
        shown.append(_user_json(run.user_message_id, new.content, new.author, new.metadata))
    return ThreadMessages(shown, frozenset(message.id for message in kept))


def message_json(message: Message) -> JsonDict:
    """Return a stored message. A message of the user keeps the id that its client gave it."""
    match message.role:
        case Role.USER:
            return _user_json(message.id, message.content, message.author, message.metadata)
        case Role.TOOL:
            return {"id": str(message.id), "role": "tool", **result_json(message)}
        case Role.ASSISTANT:
            calls: list[JsonValue] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
            called: JsonDict = {"toolCalls": calls} if calls else {}
            return {"id": str(message.id), "role": "assistant", "content": text_of(message.content), **called}


def result_json(message: Message) -> JsonDict:
    """Return what a tool has returned, and for which call."""
    failed: JsonDict = {"error": text_of(message.content)} if message.metadata.get("is_error") is True else {}
    return {"toolCallId": message.tool_call_id or "", "content": content_json(message.content), **failed}


def content_json(content: Content) -> JsonValue:
    """Return a text, or the parts of a message with images."""
    if isinstance(content, str):
        return content
    return [_part_json(block) for block in content]


def _part_json(block: Block) -> JsonDict:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if block.url.startswith("data:"):
        kind, _, data = block.url.removeprefix("data:").partition(";base64,")
        return {"type": "image", "source": {"type": "data", "mimeType": kind, "value": data}}
    return {"type": "image", "source": {"type": "url", "value": block.url}}


def _user_json(message_id: MessageId, content: Content, author: str | None, metadata: JsonObject) -> JsonDict:
    given = metadata.get(CLIENT_MESSAGE_ID)
    shown = given if isinstance(given, str) else str(message_id)
    named: JsonDict = {} if author is None else {"name": author}
    return {"id": shown, "role": "user", "content": content_json(content), **named}
