"""Examples of answers, by the names of their schemas: a session in which an index was decided on."""

from collections.abc import Mapping

from throughline.domain.message import REDACTED_TEXT
from throughline.wire.json_shape import JsonDict

SESSION_ID, RUN_ID, MEMORY_ID, SUMMARY_ID, COPY_SESSION_ID = (
    f"01998c5e-7a10-7c3b-9d2e-4f5a6b7c8d{end}" for end in ("01", "02", "03", "04", "05")
)
QUESTION_ID, ANSWER_ID = (f"01998c5e-7a10-7c3b-9d2e-4f5a6b7c8e{end}" for end in ("01", "02"))
ASKED_AT, ANSWERED_AT = "2026-05-04T08:12:30.120000+00:00", "2026-05-04T08:12:33.480000+00:00"
AGENT, MODEL = "assistant", "openai:gpt-5-mini"
DECISION = "You decided on a partial index over open orders [#12]."

SESSION: JsonDict = {
    "id": SESSION_ID,
    "agent": AGENT,
    "title": "The orders index",
    "source": "api",
    "message_count": 42,
    "summarized_count": 30,
    "created_at": "2026-05-01T09:00:00+00:00",
    "updated_at": ANSWERED_AT,
    "metadata": {"project": "orders"},
    "external_id": "ticket-4711",
    "archived": False,
    "summary_instructions": "",
}
USAGE: JsonDict = {
    "input_tokens": 1_840,
    "output_tokens": 26,
    "cached_tokens": 1_536,
    "cache_write_tokens": None,
    "reasoning_tokens": 0,
    "cost_usd": 0.000148,
}
RUN: JsonDict = {
    "id": RUN_ID,
    "session_id": SESSION_ID,
    "status": "succeeded",
    "source": "api",
    "author": "anna",
    "actor": None,
    "created_at": ASKED_AT,
    "started_at": "2026-05-04T08:12:30.140000+00:00",
    "finished_at": ANSWERED_AT,
    "attempt": 1,
    "cancel_requested": False,
    "usage": USAGE,
    "error": None,
    "user_message_id": QUESTION_ID,
    "message_id": ANSWER_ID,
    "waiting_for": None,
}
QUEUED: JsonDict = {
    **RUN,
    "status": "queued",
    "started_at": None,
    "finished_at": None,
    "attempt": 0,
    "usage": dict.fromkeys(USAGE),
    "message_id": None,
}
QUESTION: JsonDict = {
    "id": QUESTION_ID,
    "position": 41,
    "role": "user",
    "content": "What did we decide about the index?",
    "tool_calls": [],
    "tool_call_id": None,
    "name": None,
    "run_id": RUN_ID,
    "author": "anna",
    "token_count": 9,
    "source": "api",
    "pinned": False,
    "created_at": ASKED_AT,
    "metadata": {},
}
ANSWER: JsonDict = {
    **QUESTION,
    "id": ANSWER_ID,
    "position": 42,
    "role": "assistant",
    "content": DECISION,
    "author": None,
    "token_count": 14,
    "created_at": ANSWERED_AT,
}
CITATION: JsonDict = {
    "start": 49,
    "end": 52,
    "from_position": 12,
    "to_position": 12,
    "session_id": SESSION_ID,
    "status": "valid",
}
SUMMARY: JsonDict = {
    "messages_summarized": 30,
    "token_count": 610,
    "created_at": "2026-05-03T16:40:00+00:00",
    "through_id": "01998c5e-7a10-7c3b-9d2e-4f5a6b7c8e03",
    "through_position": 30,
    "model": MODEL,
}
CONTEXT: JsonDict = {
    "agent": AGENT,
    "model": MODEL,
    "context_window": 400_000,
    "response_reserve": 4_096,
    "system_tokens": 180,
    "tools_tokens": 420,
    "summary_tokens": 610,
    "message_tokens": 650,
    "total_tokens": 1_860,
    "unreduced_tokens": 1_860,
    "last_rung": None,
    "threshold_tokens": 316_723,
    "usage_percent": 0.5,
    "counted_from_position": 30,
    "messages_since_summary": 12,
    "messages_threshold": 30,
    "messages_percent": 40.0,
    "tokens_since_summary": 650,
    "tokens_threshold": 128_000,
    "tokens_percent": 0.5,
    "will_trigger": False,
    "next_action": "none",
    "next_trigger": None,
    "summary_count": 1,
    "last_summary_at": SUMMARY["created_at"],
    "estimated_response_tokens": 120,
    "summary": SUMMARY,
    "prepared": None,
    "summariser": {"model": MODEL, "state": "closed", "retry_after_seconds": 0},
    "summary_failure": None,
}
PREVIEW: JsonDict = {
    "action": "none",
    "cause": None,
    "fired": [],
    "tokens": 1_869,
    "unreduced_tokens": 1_869,
    "window": 400_000,
    "usage_percent": 0.5,
    "threshold_tokens": 316_723,
    "budget_tokens": 395_904,
    "floor_too_high": False,
    "summarised_through": 30,
    "summarise": None,
    "messages": [
        {
            "position": 31,
            "role": "user",
            "form": "whole",
            "reason": "",
            "tokens": 24,
            "pinned": False,
            "score": None,
        }
    ],
    "min_score_threshold": None,
    "quoted": [12],
}
VERSION: JsonDict = {
    "id": SUMMARY_ID,
    "version": 1,
    "state": "adopted",
    "text": "Intent: speed up the list of open orders. Decision: a partial index over open orders [#12].",
    "stretches": 1,
    "token_count": 610,
    "through_id": SUMMARY["through_id"],
    "through_position": 30,
    "model": MODEL,
    "created_at": SUMMARY["created_at"],
    "citations": [{**CITATION, "start": 86, "end": 89}],
}
SUMMARIZED: JsonDict = {
    "outcome": "adopted",
    "detail": "",
    "tokens_before": 1_860,
    "tokens_after": 1_240,
    "spent": {"calls": 1, "input_tokens": 1_310, "output_tokens": 240, "seconds": 3.2},
    "session": {**SESSION, "summarized_count": 36},
}
SUMMARY_COST: JsonDict = {
    "from_position": 1,
    "through_position": 36,
    "message_count": 36,
    "calls": 2,
    "input_tokens": 4_200,
    "output_tokens": 900,
    "seconds": 6.5,
}
FOUND: JsonDict = {
    "data": [
        {
            "session_id": SESSION_ID,
            "score": 0.92,
            "snippet": "What did we decide about the index?",
            "highlights": [[29, 34]],
            "link": f"/v1/sessions/{SESSION_ID}/messages?after=40&limit=1",
            "message": QUESTION,
        }
    ],
    "by": "text",
    "is_complete": True,
    "incomplete_sessions": [],
    "incomplete_session_count": 0,
}
MEMORY: JsonDict = {
    "id": MEMORY_ID,
    "text": "Anna's cat is called Miso.",
    "metadata": {"from": "chat"},
    "created_at": ASKED_AT,
    "updated_at": ASKED_AT,
    "score": None,
}
AGENT_SHOWN: JsonDict = {
    "name": AGENT,
    "description": "A general assistant for long conversations.",
    "model": "",
    "window": 400_000,
    "window_from": "table",
    "tools": ["current_time", "calculator"],
    "max_tool_rounds": 10,
    "max_client_rounds": 500,
    "reasoning": "show",
    "parameters": {"temperature": 0.2},
    "daily_budget": {"usd": 2.0, "tokens": None},
    "overrides": ["temperature"],
    "override_models": [],
    "context": {"strategy": "summarization", "usage_threshold": 0.8},
}
REPORTED_USAGE: JsonDict = {
    "since": "2026-05-04T00:00:00+00:00",
    "until": ANSWERED_AT,
    "data": [{**USAGE, "group": {"day": "2026-05-04"}, "calls": 1, "unpriced_calls": 0}],
}
TOKEN: JsonDict = {
    "token": "tlt_0c8PrZ5mXnYb7uVdQw2Lk9TjHsAe4GfRi1NoCx6BtMv",
    "expires_at": "2026-05-04T08:27:30+00:00",
    "scopes": ["read"],
    "session_ids": [SESSION_ID],
}
HEALTH: JsonDict = {"status": "ok", "version": "0.1.0", "checks": {"database": True, "workers": True}, "reasons": {}}
PROBLEM_KIND: JsonDict = {
    "type": "/problems/session_busy",
    "title": "A turn of this session is running",
    "status": 409,
    "cause": "A turn of the session is running or unfinished. `run_id` names it.",
    "remedy": "Wait for it or cancel it.",
    "page": "docs/reference/limits.md#a-busy-session",
}

ANSWERS: Mapping[str, JsonDict] = {
    "SessionOut": SESSION,
    "SessionPage": {"data": [SESSION], "next_cursor": None},
    "TurnOut": {"run": RUN, "message": ANSWER, "context": CONTEXT},
    "Accepted": {"run": QUEUED},
    "MessagePage": {
        "data": [{**ANSWER, "reasoning": None, "citations": [CITATION]}],
        "next_cursor": None,
    },
    "MessageOut": QUESTION,
    "RedactedMessageOut": {
        **QUESTION,
        "content": REDACTED_TEXT,
        "token_count": 0,
        "metadata": {"redacted": True},
        "copies": [{"session_id": COPY_SESSION_ID, "position": 41}],
    },
    "DeletedSessionOut": {"id": SESSION_ID, "copies": [{"session_id": COPY_SESSION_ID, "message_count": 42}]},
    "PinnedGroup": {"data": [{**QUESTION, "pinned": True}]},
    "RunForOperators": RUN,
    "RunPage": {"data": [RUN], "next_cursor": None},
    "SearchOut": FOUND,
    "SessionContextOut": {**CONTEXT, "quoted": {"positions": [12], "scores": [0.8], "tokens": 64}},
    "PreviewOut": PREVIEW,
    "SummarizeOut": SUMMARIZED,
    "SummaryCostOut": SUMMARY_COST,
    "SummaryList": {"data": [VERSION], "next_cursor": None},
    "SummaryVersionOut": VERSION,
    "MemoryOut": MEMORY,
    "MemoryPage": {"data": [MEMORY], "next_cursor": None},
    "MemoryList": {"data": [{**MEMORY, "score": 0.71}], "by": "text"},
    "UsageReportOut": REPORTED_USAGE,
    "AccessTokenOut": TOKEN,
    "ErasedUserOut": {
        "name": "anna",
        "sessions": 12,
        "messages": 480,
        "runs": 240,
        "memories": 3,
        "keys": 1,
        "access_tokens": 2,
        "slack_people": 1,
        "model_calls": 260,
        "keeps_costs": True,
        "shared_sessions": [COPY_SESSION_ID],
    },
    "AgentList": {"data": [AGENT_SHOWN]},
    "ProblemKindOut": PROBLEM_KIND,
    "Health": HEALTH,
}
