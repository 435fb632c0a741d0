"""Rows of reasoning, for the statements that store them together with a message."""

from throughline.db.statements.rows import to_json
from throughline.domain.json_types import JsonObject
from throughline.domain.message import NewMessage

INSERT_REASONING = """
    insert into message_reasoning (message_id, text, is_shown)
    select {message_id}, t.text, t.is_shown from {source} cross join json_to_recordset(cast(:reasoning as json)) as t (
        text text, is_shown boolean)
"""
"""Insert the reasoning in the parameter `reasoning`, if any, for the message of each row of `source`."""

INSERT_RETURNED = """
    insert into returned_reasoning (run_id, message_id, model, parts)
    select {run_id}, {message_id}, t.model, t.parts
    from {source} cross join json_to_recordset(cast(:returned as json)) as t (model text, parts json)
"""
"""Insert the parts in the parameter `returned`, if any, for the run and the message of each row of `source`."""


def reasoning_parameters(message: NewMessage) -> dict[str, str]:
    """Return the parameters `reasoning` and `returned` for the message."""
    reasoning = message.reasoning
    if reasoning is None:
        return {"reasoning": "[]", "returned": "[]"}
    text: JsonObject = {"text": reasoning.text, "is_shown": reasoning.is_shown}
    parts: JsonObject = {"model": reasoning.model, "parts": [dict(part) for part in reasoning.parts]}
    return {
        "reasoning": to_json([dict(text)] if reasoning.text else []),
        "returned": to_json([dict(parts)] if reasoning.parts else []),
    }
