"""Routes that compact a conversation, and that count its tokens, with the service's own engine.

See https://platform.openai.com/docs/api-reference/responses/compact and `…/responses/input-tokens`.
"""

from dataclasses import replace

from fastapi import Request, Response
from pydantic import Field

from throughline.chat_protocols.ask_agent import UNSTORED_SECONDS
from throughline.context.policy import MAX_INSTRUCTIONS
from throughline.db.sessions.import_messages import DatedMessage, Imported
from throughline.db.statements.sql import new_id
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Message, NewMessage, Role
from throughline.domain.run import CopiedMessages
from throughline.domain.session import Session
from throughline.http.call import Call, Writer, source_of
from throughline.http.documents import described
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.openai.errors import OPENAI, OpenAIRoute
from throughline.openai.input_items import Input, make_compaction_item, read_items
from throughline.openai.models import find_agent
from throughline.openai.output_items import CallKinds, JsonDict, items_of, read_conversation_id, read_response_id
from throughline.openai.read_items import with_referenced
from throughline.openai.read_request import ResponseSampling, name_not_applied, read_request
from throughline.openai.response_object import all_messages, awaited_kinds, read_response, usage_json
from throughline.openai.responses.begin_response import copy_through
from throughline.openai.responses.request import UNSUPPORTED, ConversationName, TextOptions, ToolChoice, Tools
from throughline.turn.summary.reread import SummaryRequest

router = PrefixRouter(prefix="/v1/responses", route_class=OpenAIRoute, tags=[OPENAI])


class CompactConversation(ResponseSampling):
    """A conversation to compact, in OpenAI's form. `instructions` are for the summary."""

    model: str = Field(min_length=1, max_length=100)
    input: Input | None = None
    instructions: str | None = Field(None, max_length=MAX_INSTRUCTIONS)
    previous_response_id: str | None = Field(None, max_length=200)
    prompt_cache_key: str | None = Field(None, max_length=512, description="a hint that changes nothing here")


class CountTokens(ResponseSampling):
    """A request whose prompt is to be counted, in OpenAI's form."""

    model: str = Field(min_length=1, max_length=100)
    input: Input | None = None
    instructions: str | None = Field(None, max_length=100_000)
    previous_response_id: str | None = Field(None, max_length=200)
    conversation: str | ConversationName | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice = None
    text: TextOptions | None = None


@router.post("/compact", openapi_extra=described(body=CompactConversation))
async def compact_conversation(request: Request, call: Writer) -> Response:
    """Summarise all but the newest messages, and return summary and messages as one compaction item."""
    body = await read_request(request, CompactConversation, UNSUPPORTED)
    agent, since = find_agent(call.services.agents.all(), body.model), call.services.clock.now()
    _, messages = read_items(await with_referenced(call, body.input or []), source_of(request, call))
    copied = await _previous(call, body.previous_response_id)
    if not messages and (copied is None or not copied.through_position):
        raise InvalidInput("There is nothing to compact. Send `input` or `previous_response_id`.", field="input")
    new = Imported(call.owner_id, agent.name, "", source_of(request, call), {}, expires_in_seconds=UNSTORED_SECONDS)
    new = replace(new, copied=copied)
    counted = await call.services.count_messages(agent.name, messages)
    dated = [DatedMessage(message) for message in counted]
    session = await call.services.database.sessions.import_conversation(new, dated)
    wanted = SummaryRequest(instructions=body.instructions or "")
    done = await call.services.summarize_now(call.owner_id, session.id, wanted)
    item = make_compaction_item(done.session.conversation_summary, await _uncovered(call, done.session))
    usage = await call.services.database.usage.of_session(call.owner_id, session.id)
    compacted: JsonDict = {
        "id": f"resp_{new_id().hex}",
        "object": "response.compaction",
        "created_at": int(since.timestamp()),
        "output": [item],
        "usage": usage_json(usage),
    }
    return JsonResponse(compacted, headers=name_not_applied(body.not_applied()))


@router.post("/input_tokens", openapi_extra=described(body=CountTokens))
async def count_input_tokens(request: Request, call: Writer) -> Response:
    """Count the tokens of a request's whole conversation, as the agent's token counter counts them.

    A prompt that is sent may be smaller, because it is made to fit the model's window.
    """
    body = await read_request(request, CountTokens, UNSUPPORTED)
    agent = find_agent(call.services.agents.all(), body.model)
    instructed, messages = read_items(await with_referenced(call, body.input or []), source_of(request, call))
    copied = await _previous(call, body.previous_response_id)
    if copied is not None:
        earlier = await all_messages(call, copied.session_id, last=copied.through_position)
        messages = (*(_as_new(message) for message in earlier), *messages)
    if body.conversation is not None:
        name = body.conversation if isinstance(body.conversation, str) else body.conversation.id
        earlier = await all_messages(call, read_conversation_id(name))
        messages = (*(_as_new(message) for message in earlier), *messages)
    system = "\n\n".join(text for text in (agent.system_prompt, body.instructions or "", instructed) if text)
    tools = "".join(tool.model_dump_json() for tool in body.tools or ())
    texts = [
        NewMessage(role=Role.USER, content=text, source=source_of(request, call)) for text in (system, tools) if text
    ]
    counted = await call.services.count_messages(agent.name, (*texts, *messages))
    total = sum(message.token_count for message in counted)
    headers = name_not_applied(body.not_applied())
    return JsonResponse({"object": "response.input_tokens", "input_tokens": total}, headers=headers)


async def _previous(call: Call, name: str | None) -> CopiedMessages | None:
    """Return the messages up to the previous response; None if the request names none. Raises NotFound."""
    return None if name is None else await copy_through(call, await read_response(call, read_response_id(name)))


async def _uncovered(call: Call, session: Session) -> list[JsonDict]:
    """Return the items of the session's messages that its summary does not cover."""
    newest = await all_messages(call, session.id, session.summary_through_position)
    brought = (made.name for message in newest for made in message.tool_calls)
    return items_of(newest, CallKinds(frozenset(brought), awaited_kinds(newest)))


def _as_new(message: Message) -> NewMessage:
    new = NewMessage(role=message.role, content=message.content, source=message.source)
    return replace(new, tool_calls=message.tool_calls, tool_call_id=message.tool_call_id, name=message.name)
