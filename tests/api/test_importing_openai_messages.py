"""Messages in OpenAI's format as they are imported: content in parts, refusals, and the names of tools."""

import pytest

from fakes.api_stage import set_stage
from throughline.db.database import Database

CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}


async def test_results_of_an_imported_tool_bear_the_name_that_stands_in_their_call(database: Database) -> None:
    messages = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "the anchor is in the shed", "tool_call_id": "c1"},
    ]
    async with set_stage(database).client() as client:
        made = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": messages})
        found = await client.get(f"{made.headers['Location']}/search?q=anchor&tool=grep")

    assert [hit["message"]["position"] for hit in found.json()["data"]] == [3]


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "Hello"}],
        [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}],
    ],
)
async def test_content_in_parts_as_openai_has_it_is_imported(
    database: Database, content: list[dict[str, object]]
) -> None:
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Yes."}]
    async with set_stage(database).client() as client:
        made = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": messages})

    assert made.status_code == 201


@pytest.mark.parametrize(
    "refused", [{"content": None, "refusal": "I cannot."}, {"content": [{"type": "refusal", "refusal": "I cannot."}]}]
)
async def test_what_an_assistant_said_in_refusing_is_kept_as_text(
    database: Database, refused: dict[str, object]
) -> None:
    messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", **refused}]
    async with set_stage(database).client() as client:
        made = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": messages})
        stored = (await client.get(f"{made.headers['Location']}/messages")).json()["data"]

    assert stored[1]["content"] == "I cannot."
