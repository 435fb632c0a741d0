"""Rows of model calls, for the statements that store them together with a step or the end of a turn."""

from collections.abc import Mapping, Sequence

from throughline.db.statements.new_ids import new_id
from throughline.db.statements.rows import to_json, usage_parameters
from throughline.domain.prompt import Usage
from throughline.domain.usage_report import ModelCall

INSERT_CALLS = """
    insert into model_calls (owner_id, session_id, run_id, agent, id, model, purpose, input_tokens, output_tokens,
        cached_tokens, cache_write_tokens, reasoning_tokens, cost_usd)
    select {payer}, c.* from {source} cross join json_to_recordset(cast(:model_calls as json)) as c (
        id uuid, model text, purpose text, input_tokens integer, output_tokens integer, cached_tokens integer,
        cache_write_tokens integer, reasoning_tokens integer, cost_usd numeric)
"""
"""Insert the calls of the parameter `model_calls` for each row of `source`.

`payer` are the columns of that row with owner, session, run and agent.
"""


def call_parameters(calls: Sequence[ModelCall]) -> dict[str, str]:
    """Return the parameter `model_calls` of INSERT_CALLS."""
    return {
        "model_calls": to_json([
            {"id": str(new_id()), "model": call.model, "purpose": call.purpose.value, **_json(call.usage)}
            for call in calls
        ])
    }


def _json(usage: Usage) -> Mapping[str, str | int | None]:
    """Return the usage as JSON. Money is text there, so that no digit is lost."""
    cost = None if usage.cost_usd is None else str(usage.cost_usd)
    return {**usage_parameters(usage), "cost_usd": cost}  # type: ignore[dict-item]  # counts besides
