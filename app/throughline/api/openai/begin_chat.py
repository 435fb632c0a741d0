"""The turn behind a request for a chat completion: in the session that it names, or in a new one."""

from fastapi import Request

from throughline.api.http.admitted_request import Call, source_of
from throughline.api.http.headers import fingerprint_of, read_idempotency
from throughline.api.native.openai_messages import read_messages
from throughline.api.openai.align_history import MOST_COMPARED
from throughline.api.openai.ask_agent import AgentRequest
from throughline.api.openai.begun_chat import BegunChat, ChatRequest
from throughline.api.openai.brought_conversation import split_messages
from throughline.api.openai.chat_names import SessionName, session_named
from throughline.api.openai.chat_request import CreateCompletion
from throughline.api.openai.continue_chat import PARAM, continue_chat
from throughline.api.openai.models import find_agent
from throughline.api.openai.not_applied import not_applied_echo
from throughline.api.openai.response_object import new_echo
from throughline.db.sessions.continued_session import ContinuedSession
from throughline.domain.errors import NotFound
from throughline.domain.json_types import JsonObject
from throughline.domain.message import NewMessage, Role, text_of
from throughline.domain.overrides import Overrides
from throughline.domain.run import RunInput
from throughline.domain.text import clean_content

RETRY_HEADER = "x-stainless-retry-count"
"""Header in which OpenAI's clients count how often they have sent the request before."""


async def begin_chat(request: Request, call: Call, body: CreateCompletion) -> BegunChat:
    """Store what the request asks, or find the turn that it repeats, and return the completion that it begins.

    Raises ModelNotFound, NotFound (session), InvalidInput, ConversationBranched, SessionBusy, and the errors of
    `submit`.
    """
    chat = _read(request, call, body)
    continued = None if chat.name is None else await _find_session(call, chat.name)
    if continued is not None:
        return await continue_chat(chat, continued)
    return await chat.ask_once(chat.agent_request, f"new {chat.agent_request.external_id}")


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
        texts=_user_texts(messages),
        echo=echo,
        idempotency=idempotency,
        is_retry=request.headers.get(RETRY_HEADER, "0") not in {"", "0"},
        fingerprint="" if name is None or idempotency.key is not None else fingerprint_of(request, body),
    )


def _run_input(call: Call, body: CreateCompletion, overrides: Overrides, echo: JsonObject) -> RunInput:
    """Return the turn's input without its message."""
    kept = new_echo(None, echo, int(call.services.clock.now().timestamp()))
    return RunInput("", body.read_metadata(), overrides, body.read_tools(), echo=kept)


def _user_texts(messages: tuple[NewMessage, ...]) -> tuple[str, ...]:
    """Return the texts of the user as they are stored."""
    return tuple(text_of(clean_content(message.content)) for message in messages if message.role is Role.USER)


async def _find_session(call: Call, name: SessionName) -> ContinuedSession | None:
    """Return the named session; None if it has to be created. Raises NotFound for an id that no session has."""
    sessions = call.services.database.sessions
    if name.id is not None:
        try:
            return await sessions.continue_session(call.owner_id, name.id, MOST_COMPARED)
        except NotFound:
            if name.external_id is None:
                raise
    if name.external_id is None:
        return None
    return await sessions.continue_by_external_id(call.owner_id, name.external_id, MOST_COMPARED)
