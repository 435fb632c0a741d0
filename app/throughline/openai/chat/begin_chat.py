"""The turn behind a request for a chat completion: in the session that it names, or in a new one."""

from collections.abc import Sequence

from fastapi import Request

from throughline.chat_protocols.ask_agent import AgentRequest, split_messages
from throughline.chat_protocols.continue_chat import (
    ChatRequest,
    ChatTurn,
    SessionName,
    begin_turn,
    name_session,
    user_texts,
    uuid_of,
)
from throughline.chat_protocols.follow_part import new_echo
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import InvalidInput
from throughline.domain.message import NewMessage, Role, is_blank, text_of
from throughline.domain.prompt import Overrides
from throughline.domain.run import RunInput
from throughline.domain.session import MAX_EXTERNAL_ID
from throughline.http.call import Call, source_of
from throughline.http.headers import fingerprint_of, read_idempotency
from throughline.http.openai_messages import read_messages
from throughline.openai.chat.request import SESSION_KEY, CreateCompletion
from throughline.openai.models import find_agent
from throughline.openai.read_request import not_applied_echo

# How a request for a chat completion names its session, and calls of chat programs that belong to no session. Open
# WebUI and LibreChat also call the model for titles, tags and suggestions, with the headers of the chat.

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


def session_named(request: Request, body: CreateCompletion, messages: Sequence[NewMessage]) -> SessionName | None:
    """Return how the request names its session; None if it names none, or if it is a task of a chat program.

    Raises InvalidInput for an id that is too long, or for a placeholder that the chat program has not filled in.
    """
    if body.session_name is not None:
        name = _checked(body.session_name, f"metadata.{SESSION_KEY}")
        found = uuid_of(name)
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
        return name_session(name)
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


def _is_task(request: Request, messages: Sequence[NewMessage]) -> bool:
    """Return whether the request asks for a title or something else about a chat, and is no message of it."""
    if _filled_in(request.headers.get(TASK_HEADER, "").strip(), TASK_HEADER):
        return True
    if len(messages) != 1 or messages[0].role is not Role.USER:
        return False
    text = text_of(messages[0].content).lstrip()
    return any(text.startswith(beginning) and further in text for beginning, further in TASKS)


PARAM = "messages"

RETRY_HEADER = "x-stainless-retry-count"
"""Header in which OpenAI's clients count how often they have sent the request before."""


async def begin_chat(request: Request, call: Call, body: CreateCompletion) -> ChatTurn:
    """Store what the request asks, or find the turn that it repeats, and return the completion that it begins.

    Raises ModelNotFound, NotFound (session), InvalidInput, ConversationBranched, SessionBusy, and the errors of
    `submit`.
    """
    return await begin_turn(_read(request, call, body))


def _read(request: Request, call: Call, body: CreateCompletion) -> ChatRequest:
    agent = find_agent(call.services.agents.all(), body.model)
    source = source_of(request, call)
    instructions, messages = read_messages(body.messages, source)
    name = session_named(request, body, messages)
    is_stored = name is not None or body.store is True
    overrides = body.read_overrides(instructions)
    not_applied = not_applied_echo(body.not_applied(is_stored=is_stored), overrides, agent)
    echo = {**body.echo(is_stored=is_stored), **not_applied}
    agent_request = AgentRequest(
        agent=agent.name,
        brought=split_messages(messages, instructions=instructions, param=PARAM),
        run_input=_run_input(call, body, overrides, echo),
        param=PARAM,
        is_stored=is_stored,
        external_id=None if name is None else name.external_id,
    )
    idempotency = read_idempotency(request, body)
    return ChatRequest(
        call=call,
        source=source,
        name=name,
        agent_request=agent_request,
        texts=user_texts(messages),
        echo=echo,
        idempotency=idempotency,
        is_retry=request.headers.get(RETRY_HEADER, "0") not in {"", "0"},
        fingerprint="" if name is None or idempotency.key is not None else fingerprint_of(request, body),
    )


def _run_input(call: Call, body: CreateCompletion, overrides: Overrides, echo: JsonObject) -> RunInput:
    """Return the turn's input without its message."""
    kept = new_echo(None, echo, call.unix_time)
    return RunInput("", body.read_metadata(), overrides, body.read_tools(), echo=kept)
