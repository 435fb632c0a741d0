"""An export imported again: a new session with the same messages, or a refusal that names the line."""

import json
from collections.abc import Mapping

import httpx
import pytest

from fakes.api_stage import open_session, set_stage
from fakes.conversations import open_conversation
from fakes.raw_sql import run_sql
from throughline.db.database import Database
from throughline.domain.message import ImageBlock, NewMessage, Role, Source, TextBlock, ToolCall

JSON_LINES = {"Content-Type": "application/x-ndjson"}
OF_THE_SESSION = ("id", "run_id", "pinned")
SESSION: dict[str, object] = {"type": "session", "agent": "assistant", "title": "Old", "metadata": {"a": 1}}
HELLO: dict[str, object] = {"type": "message", "position": 1, "role": "user", "content": "Hello"}

FIRST, LAST = "0001-01-02T00:00:00+00:00", "9999-12-30T23:59:59.999999+00:00"
BEFORE, AFTER = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
"""Times that the database takes for infinite ones."""

HOLDS = "select position from messages where coalesce(content, content_blocks::text) like $1"

CALLS = (ToolCall("c1", "grep", '{"q": "\u2028"}'), ToolCall("c2", "grep", "no json"))
PARTS = (TextBlock("See\u2028\n"), ImageBlock("https://example.org/a.png", "low"))
SAID = (
    NewMessage(Role.USER, PARTS, Source.WEB, author="anna", metadata={"n": [1.5]}),
    NewMessage(Role.ASSISTANT, "", Source.WEB, tool_calls=CALLS),
    NewMessage(Role.TOOL, "in the shed", Source.WORKER, tool_call_id="c1", name="grep"),
    NewMessage(Role.TOOL, "", Source.WORKER, tool_call_id="c2", name="grep", metadata={"is_error": True}),
    NewMessage(Role.ASSISTANT, "The secret is out.", Source.WEB),
    NewMessage(Role.ASSISTANT, "In the shed. 数据库 \U0001f6e0", Source.WEB),
)


def lines(*items: Mapping[str, object]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def messages_of(export: bytes) -> list[dict[str, object]]:
    """Return an export's messages without what belongs to their session alone."""
    read = [json.loads(line) for line in export.split(b"\n")[1:] if line]
    return [{name: value for name, value in item.items() if name not in OF_THE_SESSION} for item in read]


async def send(client: httpx.AsyncClient, body: bytes, query: str = "") -> httpx.Response:
    return await client.post(f"/v1/sessions/import{query}", content=body, headers=JSON_LINES)


async def test_an_export_imported_and_exported_again_holds_the_same_messages(database: Database) -> None:
    conversation = await open_conversation(database, "local", title="Old")
    await conversation.store(*SAID)
    async with set_stage(database).client() as client:
        path = f"/v1/sessions/{conversation.session.id}"
        fifth = (await client.get(f"{path}/messages?after=4&limit=1")).json()["data"][0]["id"]
        assert (await client.post(f"{path}/messages/{fifth}/redact")).status_code == 200
        first = (await client.get(f"{path}/export")).content
        made = await send(client, first)
        second = (await client.get(f"{made.headers['Location']}/export")).content
        made_again = await send(client, second)
        third = (await client.get(f"{made_again.headers['Location']}/export")).content

    assert made.status_code == 201, made.text
    assert made.json()["id"] != str(conversation.session.id)
    assert (made.json()["title"], made.json()["agent"], made.json()["message_count"]) == ("Old", "assistant", 6)
    before, after = messages_of(first), messages_of(second)
    counted = [{**message, "token_count": 0} for message in after]
    assert counted == [{**message, "token_count": 0} for message in before]
    assert (after[4]["metadata"], after[4]["token_count"]) == ({"redacted": True}, 0)
    assert messages_of(third) == after


def quoting(said: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return a call of a recall tool and its result, which quotes `said`."""
    call = {"id": "c1", "name": "search_history", "arguments": "{}"}
    return (
        {"type": "message", "position": 6, "role": "assistant", "content": "", "tool_calls": [call]},
        {
            "type": "message",
            "position": 7,
            "role": "tool",
            "tool_call_id": "c1",
            "name": "search_history",
            "content": said,
        },
    )


@pytest.mark.parametrize("is_in_blocks", [False, True])
async def test_a_redaction_reaches_what_was_quoted_in_an_export_with_lines_cut_away(
    database: Database, database_url: str, *, is_in_blocks: bool
) -> None:
    secret = {**HELLO, "position": 5, "content": "The code is tangerine."}
    quoted = "[#5, user, 2026-03-14 09:00] The code is tangerine.\n[#3, user, anna, 2026-03-14 09:00] Cut away."
    call, result = quoting(quoted)
    result = {**result, "content": [{"type": "text", "text": quoted}]} if is_in_blocks else result
    async with set_stage(database).client() as client:
        path = (await send(client, lines(SESSION, secret, call, result, {**HELLO, "position": 9}))).headers["Location"]
        before = (await client.get(f"{path}/messages")).json()["data"]
        redacted = await client.post(f"{path}/messages/{before[0]['id']}/redact")
        other = await client.post(f"{path}/messages/{before[3]['id']}/redact")

    assert "[#1, user, 2026-03-14 09:00] The code" in json.dumps(before[2]["content"])
    assert "[#3 not imported, user, anna" in json.dumps(before[2]["content"])
    assert (redacted.status_code, other.status_code) == (200, 200)
    assert await run_sql(database_url, HOLDS, "%tangerine%") == []


async def test_quotations_in_an_export_without_gaps_or_positions_stay_as_they_are(database: Database) -> None:
    said = "[#1, user, 2026-03-14 09:00] Hello\n[#9 in session 01a20a05-76a8-7303-afc8-33dcd9fa1ea6, user, x] Hi"
    call, result = quoting(said)
    async with set_stage(database).client() as client:
        for first, *rest in ((HELLO, call, result), (HELLO, {**call, "position": 0}, {**result, "position": 0})):
            made = await send(client, lines(SESSION, first, *rest))
            stored = (await client.get(f"{made.headers['Location']}/messages")).json()["data"]
            assert stored[2]["content"] == said


async def test_an_import_can_be_searched_and_gone_on_with(database: Database) -> None:
    async with set_stage(database).client() as client:
        made = await send(client, lines(SESSION, HELLO), "?agent=researcher&title=New")
        path = made.headers["Location"]
        found = (await client.get(f"{path}/search?q=hello")).json()["data"]
        answer = await client.post(f"{path}/messages", json={"content": "Go on"})

    assert (made.json()["agent"], made.json()["title"], made.json()["metadata"]) == ("researcher", "New", {"a": 1})
    assert [hit["message"]["position"] for hit in found] == [1]
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "The body is empty."),
        (b"\n \n", "The body is empty."),
        (b"{\n", "Line 1: It is not valid JSON"),
        (lines(HELLO), "Line 1, type: Must be 'session'."),
        (lines(SESSION, SESSION), "Line 2, type: Must be 'message'."),
        (lines(SESSION), "There is nothing to import"),
        (lines(SESSION, HELLO) + b"\n[]\n", "Line 4: Must be a JSON object."),
        (lines(SESSION, HELLO) + b'{"type": "message", "role"', "Line 3: It is not valid JSON"),
        (lines(SESSION, HELLO) + b'{"type": "message", "content": "\xff"}', "Line 3: It is not valid UTF-8"),
        (lines(SESSION, HELLO) + b'{"type": "message", "x": NaN}', "Line 3: NaN is not a JSON number."),
        (lines(SESSION, HELLO) + b"[" * 100, "Line 3: The line is nested more than 64 levels deep."),
        (lines(SESSION, {**HELLO, "role": "king"}), "Line 2, role: Must be 'user', 'assistant' or 'tool'."),
        (lines(SESSION, {**HELLO, "content": 7}), "Line 2, content: Must be text."),
        (lines(SESSION, {**HELLO, "content": []}), "Line 2, content: Must have 1 items or more."),
        (
            lines(SESSION, {**HELLO, "content": [{"type": "text"}]}),
            "Line 2, content.0.text.text: This field is required",
        ),
        (lines(SESSION, {**HELLO, "content": [{"type": "image", "url": "file:///etc/passwd"}]}), "Line 2, content.0"),
        (
            lines(SESSION, {**HELLO, "role": "tool"}),
            "Line 2, tool_call_id: A tool message needs the id of the call that it answers.",
        ),
        (lines(SESSION, {**HELLO, "created_at": "soon"}), "Line 2, created_at: Must be a time with its offset"),
        (lines(SESSION, {**HELLO, "created_at": "2026-01-01T00:00:00"}), "Line 2, created_at: Must be a time with its"),
        (lines(SESSION, {**HELLO, "created_at": "0001-01-01T00:00:00+14:00"}), "Line 2, created_at: Must be a time"),
        (lines(SESSION, {**HELLO, "created_at": 1}), "Line 2, created_at: Must be a time with its offset"),
        (lines(SESSION, {**HELLO, "created_at": "1"}), "Line 2, created_at: Must be a time with its offset"),
        (lines(SESSION, {**HELLO, "created_at": BEFORE}), "created_at: Must be a time from 0001-01-02 to 9999-12-30"),
        (lines(SESSION, {**HELLO, "created_at": AFTER}), "created_at: Must be a time from 0001-01-02 to 9999-12-30"),
        (lines(SESSION, {**HELLO, "metadata": {"a": "x" * 20_000}}), "Line 2, metadata: has 20009 bytes"),
        (lines(SESSION, {**HELLO, "source": "moon"}), "Line 2, source: Must be"),
        (lines(SESSION, {**HELLO, "author": "x" * 201}), "Line 2, author: Must have 200 characters or fewer."),
        (
            lines(SESSION, {**HELLO, "tool_calls": [{"id": "", "name": "a", "arguments": ""}]}),
            "Line 2, tool_calls.0.id",
        ),
        (
            lines(SESSION, {**HELLO, "tool_calls": [{"id": "a", "name": "a", "arguments": ""}]}),
            "Line 2, tool_calls: Only assistant messages may have tool calls.",
        ),
        (lines(SESSION, HELLO, HELLO), "Line 3, position: 1 does not come after 1: the lines are not in order."),
        (
            lines({**SESSION, "message_count": 3}, HELLO),
            "Line 1, message_count: Is 3, but the number of messages is 1: the export was cut off. Export again.",
        ),
        (
            lines(SESSION, *[{**HELLO, "position": 0}] * 10_001),
            "Line 10002: An import may have at most 10,000 messages",
        ),
    ],
)
async def test_a_line_that_is_wrong_is_named_and_nothing_is_stored(database: Database, body: bytes, what: str) -> None:
    async with set_stage(database).client() as client:
        refused = await send(client, body)
        sessions = (await client.get("/v1/sessions")).json()["data"]

    assert (refused.status_code, sessions) == (422, [])
    assert what in refused.json()["detail"]


@pytest.mark.parametrize("time", [FIRST, LAST])
async def test_the_first_and_the_last_time_that_are_taken_are_shown_as_they_were(database: Database, time: str) -> None:
    async with set_stage(database).client() as client:
        made = await send(client, lines(SESSION, {**HELLO, "created_at": time}))
        export = (await client.get(f"{made.headers['Location']}/export")).content
        again = await send(client, export)

    assert (messages_of(export)[0]["created_at"], again.status_code) == (time, 201)


async def test_an_unknown_agent_can_be_named_again(database: Database) -> None:
    body = lines({**SESSION, "agent": "of-elsewhere"}, HELLO)
    async with set_stage(database).client() as client:
        refused = await send(client, body)
        made = await send(client, body, "?agent=assistant")

    assert "of-elsewhere" in refused.json()["detail"]
    assert (refused.status_code >= 400, made.status_code) == (True, 201)


@pytest.mark.parametrize("kind", ["application/ndjson", "application/jsonl; charset=utf-8", "application/x-ndjson"])
async def test_json_lines_go_by_several_names(database: Database, kind: str) -> None:
    async with set_stage(database).client() as client:
        headers = {"Content-Type": kind}
        made = await client.post("/v1/sessions/import", content=lines(SESSION, HELLO), headers=headers)

    assert made.status_code == 201


async def test_other_types_are_refused(database: Database) -> None:
    async with set_stage(database).client() as client:
        headers = {"Content-Type": "application/x-ndjson; charset=latin-1"}
        refused = await client.post("/v1/sessions/import", content=lines(SESSION, HELLO), headers=headers)

    assert refused.status_code == 415


CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": '{"q": 1}'}}
CONVERSATION: list[dict[str, object]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Where is the anchor?", "name": "anna"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "in the shed", "tool_call_id": "c1", "name": "grep"},
    {"role": "assistant", "content": "In the shed."},
]


async def test_a_conversation_becomes_a_session_that_can_be_read_searched_and_gone_on_with(database: Database) -> None:
    async with set_stage(database).client() as client:
        body = {"agent": "assistant", "title": "Anchor", "messages": CONVERSATION}
        made = await client.post("/v1/sessions/import", json=body)
        path = made.headers["Location"]
        messages = (await client.get(f"{path}/messages")).json()["data"]
        found = (await client.get(f"{path}/search?q=anchor")).json()["data"]
        answer = await client.post(f"{path}/messages", json={"content": "Thanks"})

    assert (made.status_code, made.json()["message_count"], made.json()["title"]) == (201, 4, "Anchor")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"] == [{"id": "c1", "name": "grep", "arguments": '{"q": 1}'}]
    assert (messages[0]["author"], messages[2]["name"], messages[3]["token_count"]) == ("anna", "grep", 7)
    assert 1 in {hit["message"]["position"] for hit in found[:2]}  # or the call that it led to stands first
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "messages", [[{"role": "king", "content": "x"}], [{"role": "tool", "content": "x"}], [{"content": "x"}]]
)
async def test_what_is_no_conversation_is_refused_and_leaves_nothing(
    database: Database, messages: list[dict[str, object]]
) -> None:
    async with set_stage(database).client() as client:
        refused = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": messages})
        sessions = (await client.get("/v1/sessions")).json()["data"]

    assert (refused.status_code, sessions) == (422, [])


@pytest.mark.parametrize("messages", [[], CONVERSATION[:1], [{"role": "developer", "content": "Be kind."}]])
async def test_a_conversation_without_anything_to_go_on_with_is_refused_in_words(
    database: Database, messages: list[dict[str, object]]
) -> None:
    async with set_stage(database).client() as client:
        refused = await client.post("/v1/sessions/import", json={"agent": "assistant", "messages": messages})
        sessions = (await client.get("/v1/sessions")).json()["data"]

    assert (refused.status_code, sessions) == (422, [])
    assert "There is nothing to import: a session needs at least one message of a user" in refused.json()["detail"]


async def test_agent_and_title_in_the_address_stand_before_those_in_the_body(database: Database) -> None:
    body = {"agent": "of-elsewhere", "title": "Old", "messages": CONVERSATION}
    async with set_stage(database).client() as client:
        made = await client.post("/v1/sessions/import?agent=researcher&title=New", json=body)

    assert (made.json()["agent"], made.json()["title"]) == ("researcher", "New")


OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": "{}"}}


async def test_results_of_an_imported_tool_bear_the_name_that_stands_in_their_call(database: Database) -> None:
    messages = [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
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


async def test_an_export_holds_the_session_and_every_message_over_many_pages(database: Database) -> None:
    conversation = await open_conversation(database, "local", title="Long")
    await conversation.say(*(f"line {number}\u2028\n" for number in range(1, 451)))
    async with set_stage(database).client() as client:
        answer = await client.get(f"/v1/sessions/{conversation.session.id}/export")

    first, *rest = [json.loads(line) for line in answer.content.split(b"\n") if line]
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert (first["type"], first["title"], first["message_count"]) == ("session", "Long", 450)
    assert [(line["type"], line["position"]) for line in rest] == [("message", number) for number in range(1, 451)]
    assert rest[0]["content"] == "line 1\u2028\n"


async def test_an_empty_session_is_one_line(database: Database) -> None:
    async with set_stage(database).client() as client:
        session = await open_session(client)

        assert len((await client.get(f"{session}/export")).content.splitlines()) == 1
