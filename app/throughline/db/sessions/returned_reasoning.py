"""Parts of reasoning that a provider wants back, loaded with the steps of a run that goes on in another process."""

from dataclasses import replace

from throughline.db.connection.transactions import Statements
from throughline.db.statements.sql import sql
from throughline.domain.conversation import Conversation
from throughline.domain.ids import MessageId, RunId
from throughline.domain.message import Message
from throughline.domain.reasoning import Reasoning

_LOAD = sql("select message_id, model, parts from returned_reasoning where run_id = :run_id")


async def with_returned_reasoning(tx: Statements, conversation: Conversation, run_id: RunId | None) -> Conversation:
    """Return the conversation with the parts in the run's own steps. A run without steps costs no statement."""
    if run_id is None or not any(message.tool_calls for message in conversation.own):
        return conversation
    found = {
        MessageId(row["message_id"]): Reasoning(parts=tuple(row["parts"]), model=row["model"])
        for row in await tx.fetch(_LOAD, run_id=run_id)
    }
    return replace(
        conversation, own=tuple(_with_reasoning(message, found.get(message.id)) for message in conversation.own)
    )


def _with_reasoning(message: Message, found: Reasoning | None) -> Message:
    return message if found is None else replace(message, reasoning=found)
