"""Summaries of messages that other programs keep, counts of tokens, and windows of models.

No service, no session and no database is needed.

Example:
    text = await summarize_messages([{"role": "user", "content": "…"}, …], model="openai:gpt-4o-mini")
    count_tokens("We ship on 14 May.", "openai:gpt-4o")  # 7

It is separate from the rest of `throughline.client`, because it imports the code that calls models.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias
from uuid import UUID

from pydantic import ValidationError

from throughline.api.imports import ImportSession, from_openai
from throughline.assembly.models import agent_defaults, models_config
from throughline.context.budget import MAX_SUMMARY_SHARE
from throughline.context.calibration import factor
from throughline.context.policy import ContextPolicy, SummaryPolicy
from throughline.domain.basic_types import MessageId, SessionId
from throughline.domain.errors import InvalidInput
from throughline.domain.message import Message, NewMessage, Source, clean_text
from throughline.http.openai_messages import MAX_MESSAGES
from throughline.llm import context_windows
from throughline.llm.counters import counter_of, make_counter
from throughline.llm.registry import OFFLINE, ModelRegistry
from throughline.ports.models import ChatModel
from throughline.settings import read_settings
from throughline.turn.summary.summariser import Summariser
from throughline.turn.summary.summarize_now import summarize_transcript


def count_tokens(text: str, model: str = "") -> int:
    """Return the number of tokens of `text` for a model.

    The model is named as in agent files; '' is the setting `default_llm`. The count is exact for OpenAI's models in
    tiktoken's table (gpt-3.5-turbo and later) and works offline with each model's vocabulary. All others are estimated
    with cl100k_base. Raises SettingInvalid for settings that cannot be read.
    """
    return make_counter(counter_of(model or read_settings().default_llm)).count(text)


def get_context_limit(model: str = "") -> int:
    """Return the context window of a model in tokens: from the table of well-known names, else 8,192.

    A running service asks the provider's package first (LangChain's profile of the model), and learns from refusals.
    Raises SettingInvalid for settings that cannot be read.
    """
    return context_windows.get_context_limit(model or read_settings().default_llm)


LEAST_TOKENS, MOST_TOKENS = 50, 100_000
NO_ID = UUID(int=0)
NO_TIME = datetime.fromtimestamp(0, UTC)
Said: TypeAlias = NewMessage | Mapping[str, object]


async def summarize_messages(
    messages: Sequence[Said],
    existing_summary: str | None = None,
    *,
    model: str = OFFLINE,
    max_tokens: int = 1500,
    instructions: str = "",
) -> str:
    """Return one text of at most `max_tokens` that summarizes `existing_summary`, if any, and `messages` together.

    Messages are in OpenAI's format, or of the service's own type. They are numbered from 1, and the text cites these
    numbers (`[#3-#7]`). System messages are skipped and not numbered. Messages that do not fit the model's window are
    read piece by piece. `model` is named as in agent files; '' is the setting `default_llm`. Keys and addresses are the
    service's.

    Raises InvalidInput, SettingInvalid, SummaryRejected (no usable text in two attempts), NotWorthIt (the text is no
    smaller than its sources) and the ModelRejected and ModelUnavailable families. All of them are ThroughlineErrors.
    """
    if not LEAST_TOKENS <= max_tokens <= MOST_TOKENS:
        raise InvalidInput(
            f"A summary has {LEAST_TOKENS} to {MOST_TOKENS} tokens, not {max_tokens}.", field="max_tokens"
        )
    said = [numbered(position, item) for position, item in enumerate(_read(messages), start=1)]
    settings = read_settings()
    models = ModelRegistry(models_config(settings))
    try:
        found = models.get(model, agent_defaults(settings).inherited_default_base_url(model) if model else None)
        await found.ask_window()
        return await summarize_transcript(said, existing_summary or "", _summariser(found, max_tokens, instructions))
    finally:
        await models.close()


def _summariser(model: ChatModel, max_tokens: int, instructions: str) -> Summariser:
    """Return the summarizer. Its token counts use the factor of a model without measurements."""
    window = model.context_limit
    return Summariser(
        model=model,
        policy=SummaryPolicy(max_tokens=max_tokens),
        count=make_counter(ContextPolicy().token_counter).count,
        max_tokens=min(max_tokens, int(MAX_SUMMARY_SHARE * window)),
        window_tokens=window,
        factor=factor(None, is_known_tokenizer=model.has_known_tokenizer),
        instructions=instructions,
    )


def _read(messages: Sequence[Said]) -> list[NewMessage]:
    """Return the messages as NewMessage values.

    Messages in OpenAI's format are read all at once, because a tool result takes its tool's name from the call.
    """
    ours = [item for item in messages if isinstance(item, NewMessage)]
    if len(ours) == len(messages):
        return ours
    if ours:
        raise InvalidInput("The messages are of two kinds: give all as dictionaries or all as NewMessage.")
    if len(messages) > MAX_MESSAGES:
        raise InvalidInput(f"{len(messages)} messages are given; at most {MAX_MESSAGES} are read.", field="messages")
    try:
        body = ImportSession.model_validate({"agent": OFFLINE, "messages": list(messages)})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidInput(f"{field}: {first['msg']}", field=field) from None
    return [dated.message for dated in from_openai(body, Source.API).messages]


def numbered(position: int, said: NewMessage) -> Message:
    """Return `said` as a stored message with this position, although it belongs to no session."""
    content = clean_text(said.content) if isinstance(said.content, str) else said.content
    return Message(
        id=MessageId(UUID(int=position)),
        session_id=SessionId(NO_ID),
        position=position,
        role=said.role,
        content=content,
        source=said.source,
        created_at=NO_TIME,
        tool_calls=said.tool_calls,
        tool_call_id=said.tool_call_id,
        name=said.name,
        author=said.author,
    )
