"""Where redaction meets pins."""

import json

from fakes.conversations import answer_message, open_conversation
from throughline.db.database import Database
from throughline.db.sessions.redaction import Redaction
from throughline.domain.message import NewMessage, Role, Source, ToolCall


async def test_redacting_a_message_of_a_pinned_group_leaves_no_part_of_it_pinned_alone(
    database: Database,
) -> None:
    conversation = await open_conversation(database)
    claimed = await conversation.start()
    append = database.messages.append_message
    call = ToolCall("c1", "grep", json.dumps({"q": "secret"}))
    asked = await append(claimed.lease, "assistant:0", answer_message("", tool_calls=(call,)))
    result = NewMessage(Role.TOOL, "kept", Source.API, tool_call_id="c1", name="grep")
    answered = await append(claimed.lease, "tool:0:0", result)
    await conversation.end(claimed.lease)
    await conversation.pin(asked, answered)

    await database.messages.redact(Redaction(conversation.owner_id, conversation.session.id, asked.id))

    assert len({message.pinned for message in await conversation.messages()}) == 1
