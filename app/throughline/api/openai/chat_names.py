"""How a request for a chat completion names its session, and calls of chat programs that belong to no session.

Open WebUI and LibreChat also call the model for titles, tags and suggestions, with the headers of the chat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from fastapi import Request

from throughline.api.openai.chat_request import SESSION_KEY, CreateCompletion
from throughline.domain.errors import InvalidInput
from throughline.domain.ids import SessionId
from throughline.domain.message import NewMessage, Role, text_of
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.domain.text import is_blank

SESSION_HEADER = "X-Session-Id"
WHOLE_CHAT_HEADERS = ("X-Chat-Id", "X-OpenWebUI-Chat-Id")
"""Headers of programs that send the whole chat with each request. Open WebUI sends the second one by itself."""

TASK_HEADER = "X-OpenWebUI-Task"
"""Header that names a task of Open WebUI, if its connection is set up so. It is empty for messages of a chat."""

NOT_STORED = ("local:",)
"""Beginnings of the ids of temporary chats of Open WebUI, of which nothing is kept."""

NO_CHAT = frozenset({"", "new"})
"""Ids that LibreChat sends for a chat that has none yet."""

TASKS = (
    ("### Task:", "<chat_history>"),
    ("Your task is to reflect the speaker's likely facial expression through a fitting emoji.", ""),
    ("You have been provided with a set of responses from various models to the latest user query:", ""),
    ("Provide a concise, 5-word-or-less title for the conversation", ""),
    ("Analyze this conversation and provide", "detected language"),
)
"""Beginnings of the task prompts that both programs come with, each with a text that follows further on.

The first three are Open WebUI's, the other two LibreChat's.
"""


@dataclass(frozen=True, slots=True)
class SessionName:
    """A session as a request names it.

    `id` is that of a session, or None. `external_id` is the caller's own id, or None. Both are set for a header that
    may be either. With `has_whole_chat` the client sends the whole chat, also if that is one message.
    """

    id: SessionId | None = None
    external_id: str | None = None
    has_whole_chat: bool = False


def session_named(request: Request, body: CreateCompletion, messages: Sequence[NewMessage]) -> SessionName | None:
    """Return how the request names its session; None if it names none, or if it is a task of a chat program.

    Raises InvalidInput for an id that is too long, or for a placeholder that the chat program has not filled in.
    """
    if body.session_name is not None:
        name = _checked(body.session_name, f"metadata.{SESSION_KEY}")
        found = _uuid(name)
        return SessionName(external_id=name) if found is None else SessionName(id=found)
    if _is_task(request, messages):
        return None
    header = next((name for name in (SESSION_HEADER, *WHOLE_CHAT_HEADERS) if _sent(request, name)), None)
    if header is None:
        return None
    name = _checked(_sent(request, header), header)
    if name.startswith(NOT_STORED):
        return None
    if header == SESSION_HEADER:
        return SessionName(id=_uuid(name), external_id=name)
    return SessionName(external_id=name, has_whole_chat=True)


def _sent(request: Request, header: str) -> str:
    value = request.headers.get(header, "").strip()
    return "" if value in NO_CHAT else value


def _checked(name: str, field: str) -> str:
    if is_blank(name) or len(name) > MAX_EXTERNAL_ID:
        raise InvalidInput(f"{field} has 1 to {MAX_EXTERNAL_ID} characters, not {len(name)}.", field=field)
    return _filled_in(name, field)


def _filled_in(value: str, field: str) -> str:
    if "{{" in value:
        raise InvalidInput(
            f"{field} is {value!r}, a placeholder that the chat program has not filled in. Check its name.", field=field
        )
    return value


def _uuid(text: str) -> SessionId | None:
    try:
        found = UUID(text)
    except ValueError:
        return None
    return SessionId(found) if str(found) == text.lower() else None


def _is_task(request: Request, messages: Sequence[NewMessage]) -> bool:
    """Return whether the request asks for a title or something else about a chat, and is no message of it."""
    if _filled_in(request.headers.get(TASK_HEADER, "").strip(), TASK_HEADER):
        return True
    if len(messages) != 1 or messages[0].role is not Role.USER:
        return False
    text = text_of(messages[0].content).lstrip()
    return any(text.startswith(beginning) and further in text for beginning, further in TASKS)
