"""Examples of request bodies, by the names of their schemas."""

from collections.abc import Mapping

from throughline.api.openapi.example_answers import SESSION_ID
from throughline.wire.json_shape import JsonDict

BODIES: Mapping[str, JsonDict] = {
    "CreateSession": {
        "agent": "assistant",
        "title": "The orders index",
        "metadata": {"project": "orders"},
        "external_id": "ticket-4711",
    },
    "ChangeSession": {"title": "The orders index, settled", "archived": True},
    "SendMessage": {"content": "What did we decide about the index?", "metadata": {"page": "/orders"}},
    "ResumeRun": {"calls": [{"call_id": "call_1", "decision": "approve"}]},
    "CreateToken": {"session_ids": [SESSION_ID], "scopes": ["read"], "expires_in": 900},
    "PreviewContext": {"content": "What did we decide about the index?"},
    "Summarize": {"instructions": "Keep every decision with its reason."},
    "CreateMemory": {"text": "Anna's cat is called Miso.", "metadata": {"from": "chat"}},
    "ChangeMemory": {"text": "Anna's cats are called Miso and Nori."},
    "SearchMemories": {"query": "the name of the cat", "limit": 5},
    "ImportSession": {
        "agent": "assistant",
        "title": "The orders index",
        "messages": [
            {"role": "user", "content": "What did we decide about the index?"},
            {"role": "assistant", "content": "You decided on a partial index over open orders."},
        ],
    },
}
