"""`throughline sessions import` of the exports of ChatGPT and Claude."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from fakes.command_stage import CommandStage
from throughline.cli.imports import json_list
from throughline.cli.imports.json_list import ExportFile
from throughline.domain.errors import InvalidInput

Throughline = Callable[..., Result]
EXPORTS = Path(__file__).parent / "exports"
TO = ("--agent", "assistant")
MESSAGES = """
    select m.role, m.content, m.tool_calls, m.tool_call_id, m.tool_name, m.created_at::text, m.metadata::text
    from messages m join sessions s on s.id = m.session_id where s.external_id = $1 order by m.position
"""
STORED = "select external_id, title, (select count(*) from messages m where m.session_id = s.id) from sessions s"
ROME, EMPTY = "6639f000-0000-8000-8000-000000000001", "6639f000-0000-8000-8000-000000000002"
APPLES = "0b1c0000-0000-4000-8000-000000000001"


def written(path: Path, value: object) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)


def chat(number: int, *said: str) -> dict[str, Any]:
    """Return a conversation of ChatGPT in which the user says so much."""
    nodes: dict[str, Any] = {"root": {"parent": None, "message": None}}
    last = "root"
    for text in said:
        message = {"id": text, "author": {"role": "user"}, "content": {"content_type": "text", "parts": [text]}}
        nodes[text] = {"parent": last, "message": message}
        last = text
    return {"conversation_id": f"chat-{number}", "title": f"Chat {number}", "mapping": nodes, "current_node": last}


async def exported(service: CommandStage, external_id: str) -> list[dict[str, Any]]:
    """Return the lines of the export of the session with this external id."""
    ((session_id,),) = await service.sql("select id::text from sessions where external_id = $1", external_id)
    result = await service.run("sessions", "export", session_id)
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_a_chat_of_chatgpt_keeps_its_shown_path_tools_times_and_models(service: CommandStage) -> None:
    result = await service.run("sessions", "import", EXPORTS / "chatgpt.json", *TO)

    assert result.exit_code == 0, result.output
    session, *messages = await exported(service, ROME)
    assert (session["title"], session["metadata"]["imported_from"]) == (
        "Trip to Rome",
        {
            "program": "chatgpt",
            "conversation_id": ROME,
            "created_at": "2024-05-06T12:53:20.250000+00:00",
            "updated_at": "2024-05-06T13:00:00.500000+00:00",
            "model": "gpt-4o",
        },
    )
    assert [(message["role"], message["content"]) for message in messages] == [
        ("user", "[Image: sediment://file_0001]\nWhat is on this picture?\n[File: plan.pdf]"),
        ("assistant", ""),
        ("tool", "42\n"),
        ("assistant", ""),
        ("tool", "The forum.\n\nMore of it."),
        ("assistant", "It is the Forum Romanum."),
        ("user", "Thanks!\n[File: sediment://file_0003]"),
    ]
    _, code, output, search, found, answer, _ = messages
    assert code["tool_calls"] == [{"id": "c1", "name": "python", "arguments": '{"input": "print(6*7)"}'}]
    assert (output["tool_call_id"], output["name"]) == ("c1", "python")
    assert search["tool_calls"] == [{"id": "c2", "name": "web.search", "arguments": '{"query": "Forum Romanum"}'}]
    assert (found["tool_call_id"], found["name"]) == ("c2", "web.search")
    assert (code["reasoning"], answer["created_at"]) == ("Looking\nIt has columns.", "2024-05-06T12:53:31+00:00")
    assert answer["metadata"] == {"message_id": "a1", "model": "o3"}


async def test_what_is_left_out_of_chatgpts_export_is_told_with_places(service: CommandStage) -> None:
    result = await service.run("sessions", "import", EXPORTS / "chatgpt.json", *TO)

    told = result.stdout
    place = f"conversation 1 in {EXPORTS / 'chatgpt.json'} (Trip to Rome)"
    assert told.startswith("1 sessions with 7 messages imported\nleft out:\n")
    assert f"1 custom instructions ({place}: ctx)" in told
    assert f"3 images and other files, which conversations.json only names ({place}: u1 (sediment://file_0001)" in told
    assert f"1 messages of other branches (edited or regenerated) ({place}: a1-old)" in told
    assert f"1 notes about the time of reasoning ({place}: r1)" in told
    assert f"1 results of tools without a call ({place}: m1)" in told
    assert f"1 conversations without messages (conversation 2 in {EXPORTS / 'chatgpt.json'})" in told
    assert "system messages" not in told, "ChatGPT's empty one is nothing"


async def test_a_chat_of_claude_keeps_its_steps_attachments_and_times(service: CommandStage) -> None:
    result = await service.run("sessions", "import", EXPORTS / "claude.json", *TO)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("2 sessions with 8 messages imported\n")
    _, *messages = await exported(service, APPLES)
    assert [(message["role"], message["content"]) for message in messages] == [
        ("user", "Summarise this\n\n[Attachment: notes.txt]\nBuy apples.\n\n[File: photo.png]"),
        ("assistant", "One moment."),
        ("tool", "Apple\nhttps://example.org/apple\nA fruit."),
        ("assistant", ""),
        ("tool", "OK"),
        ("assistant", "You want to buy apples."),
    ]
    _, first, found, second, made, last = messages
    assert first["tool_calls"] == [{"id": "toolu_1", "name": "web_search", "arguments": '{"query": "apples"}'}]
    assert (first["reasoning"], found["tool_call_id"], found["name"]) == ("A short list.", "toolu_1", "web_search")
    assert (second["tool_calls"][0]["id"], made["tool_call_id"]) == ("m2-5", "m2-5")
    assert last["created_at"] == "2025-11-02T10:00:05+00:00"
    assert "1 messages of other branches (edited or retried)" in result.stdout
    assert "1 files and images, which conversations.json only names" in result.stdout
    assert "1 content of the kind `image` in results of tools" in result.stdout


async def test_the_archive_is_read_with_all_its_parts_and_what_else_is_in_it_is_told(
    service: CommandStage, tmp_path: Path
) -> None:
    packed = tmp_path / "export.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("export/conversations-001.json", json.dumps([chat(2, "two")]))
        archive.writestr("export/conversations-000.json", json.dumps([chat(1, "one")]))
        archive.writestr("export/user.json", "{}")
        archive.writestr("__MACOSX/export/._conversations-000.json", "x")

    result = await service.run("sessions", "import", packed, *TO)

    assert result.exit_code == 0, result.output
    assert await service.said() == ["one", "two"]
    assert "1 other files of the archive (export/user.json)" in result.stdout


async def test_a_repeated_import_skips_what_is_there_and_takes_the_rest(service: CommandStage, tmp_path: Path) -> None:
    some = written(tmp_path / "some.json", [chat(1, "one")])
    more = written(tmp_path / "more.json", [chat(1, "one"), chat(2, "two"), chat(2, "two")])

    await service.run("sessions", "import", some, *TO)
    result = await service.run("sessions", "import", more, *TO)

    assert result.stdout == "1 sessions with 1 messages imported\n2 skipped: a session with their id exists\n"
    assert sorted(await service.sql(STORED)) == [("chat-1", "Chat 1", 1), ("chat-2", "Chat 2", 1)]


async def test_a_dry_run_tells_the_same_and_stores_nothing(service: CommandStage, tmp_path: Path) -> None:
    file = written(tmp_path / "c.json", [chat(1, "one", "two"), chat(1, "one")])

    result = await service.run("sessions", "import", file, *TO, "--dry-run")

    assert result.stdout == (
        "1 sessions with 2 messages would be imported\n1 skipped: a session with their id exists\n"
    )
    assert await service.sql(STORED) == []


async def test_a_conversation_that_cannot_be_imported_is_named_and_the_others_are(
    service: CommandStage, tmp_path: Path
) -> None:
    circle = chat(2, "a", "b")
    circle["mapping"]["a"]["parent"] = "b"
    nameless = {**chat(3, "c"), "conversation_id": ""}
    many = chat(4, *(f"text {number}" for number in range(10_001)))
    file = written(tmp_path / "c.json", [chat(1, "one"), circle, nameless, many, chat(5, "five")])

    result = await service.run("sessions", "import", file, *TO)

    told = " ".join(result.stderr.split())
    assert result.exit_code == 1
    assert f"not imported: conversation 2 in {file} (Chat 2): the tree goes in a circle at b." in told
    assert f"not imported: conversation 3 in {file} (Chat 3): it has no id" in told
    assert f"not imported: conversation 4 in {file} (Chat 4): Line 10002: An import may have at most 10,000" in told
    assert "Not imported: 3 conversations, named above." in told
    assert [stored[0] for stored in sorted(await service.sql(STORED))] == ["chat-1", "chat-5"]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ('[{"mapping": {}}, {"mapping": {', "conversation 2 in {file} is no valid JSON: "),
        ('[{"mapping": {}} {"mapping": {}}]', "{file} is cut off or damaged behind conversation 1 (character 18)."),
        ('[{"mapping": {}}, 7]', "conversation 2 in {file} is no JSON object (character 19)."),
        ('[{"mapping": {}}, {"chat_messages": []}]', "conversation 2 in {file} has no `mapping`"),
        ('[{"mapping": ' + "[" * 100_000, "conversation 1 in {file} is nested too deeply."),
    ],
)
async def test_a_damaged_file_is_refused_with_its_place(
    service: CommandStage, tmp_path: Path, content: str, wrong: str
) -> None:
    file = written(tmp_path / "c.json", content)

    result = await service.run("sessions", "import", file, *TO)

    assert result.exit_code == 1
    assert wrong.format(file=file) in " ".join(result.stderr.split())


@pytest.mark.parametrize("content", [b"PK\x03\x04 and nothing of an archive", b""])
async def test_an_archive_without_conversations_is_refused(
    service: CommandStage, tmp_path: Path, content: bytes
) -> None:
    packed = tmp_path / "export.zip"
    packed.write_bytes(content)
    if not content:
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("user.json", "{}")

    result = await service.run("sessions", "import", packed, *TO)

    assert result.exit_code == 1
    assert "no readable ZIP archive" in result.stderr or "has no file conversations.json" in result.stderr


@pytest.mark.parametrize(
    ("options", "wrong", "code"),
    [
        ((), "Name the agent of the new sessions: add --agent", 1),
        (("--agent", "nobody"), "There is no agent 'nobody'. Agents: ", 1),
        ((*TO, "--title", "x"), "--title and --external-id are for a single conversation.", 2),
        ((*TO, "--from", "langgraph"), "give its URL, postgresql://", 2),
        ((*TO, "--user", "anna"), "`On-Behalf-Of` needs a key with the scope `act_as`", 1),
        ((*TO, "--from", "claude"), "has no `chat_messages`: it is no conversation of claude.", 1),
    ],
)
async def test_options_that_do_not_fit_are_refused(
    service: CommandStage, tmp_path: Path, options: tuple[str, ...], wrong: str, code: int
) -> None:
    file = written(tmp_path / "c.json", [chat(1, "one")])

    result = await service.run("sessions", "import", file, *options)

    assert (result.exit_code, await service.sql(STORED)) == (code, [])
    assert wrong in " ".join(result.stderr.split())


async def test_what_a_crash_left_to_do_is_done_by_the_next_import(service: CommandStage, tmp_path: Path) -> None:
    whole = json.dumps([chat(1, "one"), chat(2, "two")])
    cut = written(tmp_path / "cut.json", whole[:-20])

    broken = await service.run("sessions", "import", cut, *TO)
    again = await service.run("sessions", "import", written(tmp_path / "whole.json", whole), *TO)

    assert (broken.exit_code, again.exit_code) == (1, 0)
    assert broken.stdout == "1 sessions with 1 messages imported\n"
    assert await service.said() == ["one", "two"]


@pytest.mark.parametrize("chunk", [1, 7, 1_000])
def test_a_list_is_read_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(json_list, "CHUNK", chunk)
    items = [{"text": 'ü "]},{' * 30, "n": number} for number in range(9)]

    found = list(ExportFile(io.BytesIO(b"\xef\xbb\xbf" + json.dumps(items, indent=1).encode()), "c.json").items())

    assert [item.members for item in found] == items


def test_a_conversation_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_list, "CHUNK", 10)
    monkeypatch.setattr(json_list, "MAX_CONVERSATION", 100)
    export = ExportFile(io.BytesIO(json.dumps([{"a": 1}, {"text": "x" * 1_000}]).encode()), "c.json")

    with pytest.raises(InvalidInput, match=r"conversation 2 in c\.json has more than 100 characters"):
        list(export.items())
