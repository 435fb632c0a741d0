"""`throughline sessions import | redact`, and what a refused search says."""

import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import Result

from fakes.fake_parts import FakeWorld
from fakes.wire_shapes import message_id

Throughline = Callable[..., Result]
MESSAGES = [{"role": "user", "content": "Grüße"}]
EXPORT = b'{"type": "session", "agent": "assistant"}\n{"type": "message", "role": "user", "content": "Hello"}\n'


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_conversation_in_openais_format_is_imported(
    world: FakeWorld, throughline: Throughline, tmp_path: Path, indent: int | None
) -> None:
    body = {"agent": "assistant", "title": "Old", "messages": MESSAGES}
    file = written(tmp_path / "talk.json", json.dumps(body, indent=indent, ensure_ascii=False).encode())

    result = throughline("sessions", "import", file, "--title", "New")

    kind, query, sent = world.service.imported[0]
    assert (result.exit_code, kind, query) == (0, "application/json", {})
    assert json.loads(sent) == {**body, "title": "New"}
    assert result.stdout == f"{UUID(int=500)}\n"
    assert "3 messages imported" in result.stderr
    assert f"throughline chat --session {UUID(int=500)}" in result.stderr


def test_a_bare_list_of_messages_needs_an_agent(world: FakeWorld, throughline: Throughline, tmp_path: Path) -> None:
    file = written(tmp_path / "talk.json", json.dumps(MESSAGES).encode())

    refused = throughline("sessions", "import", file)
    made = throughline("sessions", "import", file, "--agent", "researcher")

    assert (refused.exit_code, made.exit_code) == (1, 0)
    assert "Add --agent, for example --agent assistant." in refused.stderr
    assert [json.loads(sent) for _, _, sent in world.service.imported] == [
        {"agent": "researcher", "messages": MESSAGES}
    ]


@pytest.mark.parametrize("content", [EXPORT, EXPORT.splitlines()[0], EXPORT + b"{broken"])
def test_an_export_is_sent_as_it_is(world: FakeWorld, throughline: Throughline, tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path / "talk.jsonl", content)

    throughline("sessions", "import", file, "--agent", "researcher")

    assert world.service.imported == [("application/x-ndjson", {"agent": "researcher"}, content)]


def test_an_export_is_read_from_a_pipe(world: FakeWorld, throughline: Throughline) -> None:
    throughline("sessions", "import", "-", typed=EXPORT.decode())

    assert [sent for _, _, sent in world.service.imported] == [EXPORT]


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe", b"{", b"7", b"[" * 100_000])
def test_a_file_that_is_neither_format_is_refused_here(
    world: FakeWorld, throughline: Throughline, tmp_path: Path, content: bytes
) -> None:
    result = throughline("sessions", "import", written(tmp_path / "x", content))

    assert (result.exit_code, world.service.imported) == (1, [])
    assert "The file is neither JSON nor JSON Lines" in " ".join(result.stderr.split())


def test_a_file_that_is_not_there_is_a_usage_error(throughline: Throughline) -> None:
    assert throughline("sessions", "import", "/no/such/file").exit_code == 2


@pytest.mark.parametrize("name", ["2", "#2", message_id(2)])
def test_a_message_is_redacted_by_position_or_id(world: FakeWorld, throughline: Throughline, name: str) -> None:
    session = world.service.add_session(7, messages=3)

    result = throughline("sessions", "redact", session, name, "--yes")

    assert (result.exit_code, world.service.redacted) == (0, [message_id(2)])
    assert "message #2 is redacted" in result.stderr


def test_a_message_is_redacted_only_after_a_yes(world: FakeWorld, throughline: Throughline) -> None:
    session = world.service.add_session(7, messages=3)

    refused = throughline("sessions", "redact", session, "2", typed="n\n")
    before = list(world.service.redacted)
    done = throughline("sessions", "redact", session, "2", typed="y\n")

    assert (refused.exit_code, before, done.exit_code) == (1, [], 0)
    assert f"message #2 of session {session}" in refused.stderr


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("9", "There is no message #9 in session"),
        ("0", "'0' is neither the position of a message, like 12, nor its id."),
        ("99999999999999999999", "is neither the position"),
        ("abc", "'abc' is neither the position"),
        (str(UUID(int=5)), "There is no such message."),
    ],
)
def test_a_message_that_is_none_is_refused_in_words(
    world: FakeWorld, throughline: Throughline, name: str, what: str
) -> None:
    session = world.service.add_session(7, messages=3)

    result = throughline("sessions", "redact", session, name, "--yes")

    assert result.exit_code == 1
    assert what in " ".join(result.stderr.split())


def test_a_search_that_is_refused_says_why_in_a_chat_and_outside_one(
    world: FakeWorld, throughline: Throughline
) -> None:
    session = world.service.add_session(7, messages=3)
    world.service.search_refusal = "`before:yesterday` names no day."

    outside = throughline("sessions", "search", "before:yesterday")
    inside = throughline("chat", "--session", session, typed="/search before:yesterday\n")

    assert (outside.exit_code, outside.stderr) == (1, "Error: `before:yesterday` names no day.\n")
    assert "Error: `before:yesterday` names no day." in inside.stderr
