"""Import of a conversation in OpenAI's message format, as other programs store it."""

from pydantic import BaseModel, Field

from throughline.api.native.openai_messages import MAX_MESSAGES, ImportedMessage, read_messages
from throughline.api.native.requests import STRICT, ExternalId, Metadata, Title
from throughline.db.sessions.import_messages import Conversation, DatedMessage
from throughline.domain.message import Source


class ImportSession(BaseModel):
    """A conversation in OpenAI's message format, to be continued as a session."""

    model_config = STRICT

    agent: str = Field(min_length=1, max_length=100, examples=["assistant"])
    title: Title = ""
    metadata: Metadata = Field(default_factory=dict)
    external_id: ExternalId | None = None
    messages: list[ImportedMessage] = Field(max_length=MAX_MESSAGES, json_schema_extra={"minItems": 1})


def from_openai(body: ImportSession, source: Source) -> Conversation:
    """Return the conversation, without system and developer messages.

    Raises InvalidInput if a tool message has no `tool_call_id`. Tool results without a matching call are stored
    unchanged and never sent to a model.
    """
    _, messages = read_messages(body.messages, source)
    dated = tuple(DatedMessage(message) for message in messages)
    return Conversation(body.agent, body.title, body.metadata, dated, body.external_id)
