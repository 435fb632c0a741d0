"""`/branch` in a chat: a new session up to an earlier message, and that message again for editing."""

import pytest

from fakes.command_stage import CommandStage, TypedLines
from fakes.conversations import Conversation, answer_message, user_message
from fakes.scripted_turns import said
from throughline.cli.chat.command import chat
from throughline.cli.chat.state import ChatState
from throughline.cli.screen import Screen
from throughline.domain.message import ImageBlock, NewMessage, Role, Source, TextBlock, ToolCall

COUNTS = "select message_count from sessions order by created_at"


async def typed(service: CommandStage, talk: Conversation, *lines: str) -> list[str]:
    """Type lines at a terminal, in this session; return as what they began, without those that began empty."""
    async with service.client() as client:
        session = await client.session(str(talk.session.id))
        reader = TypedLines(list(lines))
        await chat(ChatState(client, Screen(), "assistant", session=session), reader)
    return reader.begun_as


async def test_the_last_message_is_asked_again_in_a_new_session(service: CommandStage) -> None:
    talk = await service.talk(4)
    service.api.turns.scripts = [said("Otherwise")]

    result = await service.run("chat", "--session", talk.session.id, typed="/branch\nask otherwise\n")

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1].startswith("Session ")
    assert lines[2:] == ["2 messages in history", "text 3", "Otherwise"]
    assert await service.sql(COUNTS) == [(4,), (4,)]


async def test_a_branch_ends_with_the_message_that_is_named(service: CommandStage) -> None:
    talk = await service.talk(4)

    result = await service.run("chat", "--session", talk.session.id, typed="/branch #3\n/history\n/branch 0\n")

    assert result.stdout.splitlines()[2:6] == [
        "3 messages in history",
        "#1 user text 1",
        "#2 assistant text 2",
        "#3 user text 3",
    ]
    assert result.stdout.splitlines()[7:] == ["No messages yet.", "text 1"]
    assert await service.sql(COUNTS) == [(4,), (3,), (0,)]


async def test_the_message_is_the_beginning_of_the_next_line_at_a_terminal(service: CommandStage) -> None:
    talk = await service.session()
    await talk.store(user_message("first"), answer_message("one"), user_message("/etc/hosts\nholds what?"))
    await talk.store(answer_message("", tool_calls=(ToolCall("c1", "grep", "{}"),)), answer_message("names"))

    assert await typed(service, talk, "/branch", "/history") == ["//etc/hosts\nholds what?"]
    assert await typed(service, talk, "/branch 0", "/branch 1") == ["first"]


async def test_images_are_left_out_and_named(service: CommandStage, capsys: pytest.CaptureFixture[str]) -> None:
    talk = await service.session()
    parts = (TextBlock("See"), ImageBlock("https://example.org/a.png", "low"))
    await talk.store(NewMessage(Role.USER, parts, Source.CLI))

    begun = await typed(service, talk, "/branch")

    assert begun == ["See"]
    assert "the images of #1 cannot be sent from here" in capsys.readouterr().err


async def test_the_last_message_is_found_behind_many_steps(service: CommandStage) -> None:
    talk = await service.session()
    await talk.store(user_message("first"), *(answer_message(f"step {n}") for n in range(120)))

    result = await service.run("chat", "--session", talk.session.id, typed="/branch\n")

    assert result.stdout.splitlines()[2:] == ["No messages yet.", "first"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("/branch x", "Write /branch with the number of the last message to keep"),
        ("/branch 9", "has 4 messages: `at` is at most 4"),
    ],
)
async def test_a_position_that_is_none_is_refused(service: CommandStage, line: str, error: str) -> None:
    talk = await service.talk(4)

    result = await service.run("chat", "--session", talk.session.id, typed=f"{line}\n")

    assert result.exit_code == 1
    assert error in " ".join(result.stderr.split())


async def test_there_is_nothing_to_branch_before_the_first_message(service: CommandStage) -> None:
    empty = await service.session()

    without = await service.run("chat", typed="/branch\n")
    without_messages = await service.run("chat", "--session", empty.session.id, typed="/branch\n")

    assert "No message has been sent yet" in without.stderr
    assert "You have sent no message in this session" in without_messages.stderr
