"""Rows of reasoning, for the statements that store them together with a message."""

from throughline.db.statements.rows import to_json
from throughline.domain.message import NewMessage

INSERT_REASONING = """
    insert into message_reasoning (message_id, text, is_shown)
    select {message_id}, t.text, t.is_shown from {source} cross join json_to_recordset(cast(:reasoning as json)) as t (
        text text, is_shown boolean)
"""
"""Insert the reasoning in the parameter `reasoning`, if any, for the message of each row of `source`."""


def reasoning_parameters(message: NewMessage) -> dict[str, str]:
    """Return the parameter `reasoning` of INSERT_REASONING."""
    reasoning = message.reasoning
    return {
        "reasoning": "[]" if reasoning is None else to_json([{"text": reasoning.text, "is_shown": reasoning.is_shown}])
    }
