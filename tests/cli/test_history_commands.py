"""`throughline sessions import | redact`, and what a refused search says."""

import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import Result

from fakes.command_stage import CommandStage
from fakes.conversations import Conversation
from fakes.fake_dependencies import FakeWorld

Throughline = Callable[..., Result]
MESSAGES = [{"role": "user", "content": "Grüße"}]
EXPORT = b'{"type": "session", "agent": "assistant"}\n{"type": "message", "role": "user", "content": "Hello"}\n'
SESSION = "select id::text, agent, title, (select string_agg(content, '|') from messages) from sessions"


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def imported(service: CommandStage) -> list[tuple[str | None, dict[str, str], bytes]]:
    """Return media type, query and body of each conversation that was handed in."""
    return [
        (request.headers.get("content-type"), dict(request.query_params), bytes(body))
        for request, body in zip(service.way.asked, service.way.bodies, strict=True)
        if request.url.path == "/v1/sessions/import"
    ]


@pytest.fixture
async def talk(service: CommandStage) -> Conversation:
    return await service.talk(3)


@pytest.mark.parametrize("indent", [None, 2])
async def test_a_conversation_in_openais_format_is_imported(
    service: CommandStage, tmp_path: Path, indent: int | None
) -> None:
    body = {"agent": "assistant", "title": "Old", "messages": MESSAGES}
    file = written(tmp_path / "talk.json", json.dumps(body, indent=indent, ensure_ascii=False).encode())

    result = await service.run("sessions", "import", file, "--title", "New")

    kind, query, sent = imported(service)[0]
    assert (result.exit_code, kind, query) == (0, "application/json", {})
    assert json.loads(sent) == {**body, "title": "New"}
    session_id = result.stdout.strip()
    assert await service.sql(SESSION) == [(session_id, "assistant", "New", "Grüße")]
    assert result.stdout == f"{session_id}\n"
    assert "1 messages imported" in result.stderr
    assert f"throughline chat --session {session_id}" in result.stderr


async def test_a_bare_list_of_messages_needs_an_agent(service: CommandStage, tmp_path: Path) -> None:
    file = written(tmp_path / "talk.json", json.dumps(MESSAGES).encode())

    refused = await service.run("sessions", "import", file)
    made = await service.run("sessions", "import", file, "--agent", "researcher")

    assert (refused.exit_code, made.exit_code) == (1, 0)
    assert "Add --agent, for example --agent assistant." in refused.stderr
    assert [json.loads(sent) for _, _, sent in imported(service)] == [{"agent": "researcher", "messages": MESSAGES}]


@pytest.mark.parametrize("content", [EXPORT, EXPORT.splitlines()[0], EXPORT + b"{broken"])
async def test_an_export_is_sent_as_it_is(service: CommandStage, tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path / "talk.jsonl", content)

    await service.run("sessions", "import", file, "--agent", "researcher")

    assert imported(service) == [("application/x-ndjson", {"agent": "researcher"}, content)]


async def test_the_external_id_of_a_file_is_kept_replaced_or_left_out(service: CommandStage, tmp_path: Path) -> None:
    session, *rest = EXPORT.splitlines(keepends=True)
    named = json.dumps({**json.loads(session), "external_id": "a"}).encode() + b"\n"
    export = written(tmp_path / "talk.jsonl", b"".join((named, *rest)))
    body = {"agent": "assistant", "external_id": "d", "messages": MESSAGES}
    conversation = written(tmp_path / "talk.json", json.dumps(body).encode())

    for file, options in (
        (export, ()),
        (export, ("--external-id", "b")),
        (export, ("--external-id", "")),
        (conversation, ("--external-id", "c")),
        (conversation, ("--external-id", "")),
    ):
        assert (await service.run("sessions", "import", file, *options)).exit_code == 0

    found = await service.sql("select external_id from sessions order by created_at")
    assert found == [("a",), ("b",), (None,), ("c",), (None,)]


async def test_an_export_is_read_from_a_pipe(service: CommandStage) -> None:
    await service.run("sessions", "import", "-", typed=EXPORT.decode())

    assert [sent for _, _, sent in imported(service)] == [EXPORT]
    assert await service.said() == ["Hello"]


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe", b"{", b"7", b"[" * 100_000])
def test_a_file_that_is_neither_format_is_refused_here(
    world: FakeWorld, throughline: Throughline, tmp_path: Path, content: bytes
) -> None:
    world.socket_path = tmp_path / "nobody listens: sending would be another error"

    result = throughline("sessions", "import", written(tmp_path / "x", content))

    assert result.exit_code == 1
    assert "The file is neither JSON nor JSON Lines" in " ".join(result.stderr.split())


def test_a_file_that_is_not_there_is_a_usage_error(throughline: Throughline) -> None:
    assert throughline("sessions", "import", "/no/such/file").exit_code == 2


@pytest.mark.parametrize("name", ["2", "#2", "id"])
async def test_a_message_is_redacted_by_position_or_id(service: CommandStage, talk: Conversation, name: str) -> None:
    before = await talk.messages()
    named = before[1].id if name == "id" else name

    result = await service.run("sessions", "redact", talk.session.id, named, "--yes")

    after = await talk.messages()
    assert (result.exit_code, [message.position for message in after if message not in before]) == (0, [2])
    assert "message #2 is redacted" in result.stderr


async def test_a_message_is_redacted_only_after_a_yes(service: CommandStage, talk: Conversation) -> None:
    stored = await talk.messages()

    refused = await service.run("sessions", "redact", talk.session.id, 2, typed="n\n")
    before = await talk.messages()
    done = await service.run("sessions", "redact", talk.session.id, 2, typed="y\n")

    assert (refused.exit_code, before, done.exit_code) == (1, stored, 0)
    assert f"message #2 of session {talk.session.id}" in refused.stderr


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("9", "There is no message #9 in session"),
        ("0", "'0' is neither the position of a message, such as 12, nor its id."),
        ("99999999999999999999", "is neither the position"),
        ("abc", "'abc' is neither the position"),
        (str(UUID(int=5)), f"There is no message {UUID(int=5)} in session"),
    ],
)
async def test_an_unknown_message_is_refused_with_a_reason(
    service: CommandStage, talk: Conversation, name: str, what: str
) -> None:
    result = await service.run("sessions", "redact", talk.session.id, name, "--yes")

    assert result.exit_code == 1
    assert what in " ".join(result.stderr.split())


async def test_a_search_that_is_refused_says_why_in_a_chat_and_outside_one(
    service: CommandStage, talk: Conversation
) -> None:
    outside = await service.run("sessions", "search", "before:yesterday")
    inside = await service.run("chat", "--session", talk.session.id, typed="/search before:yesterday\n")

    assert (outside.exit_code, outside.stderr) == (1, inside.stderr)
    assert inside.stderr.startswith("Error: `before:yesterday` names no day. ")
