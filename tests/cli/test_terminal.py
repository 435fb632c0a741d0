import errno
from collections.abc import AsyncIterator, Iterator
from io import StringIO
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from fakes.command_stage import CommandStage
from fakes.typed_lines import TypedLines
from throughline.cli.chat_state import ChatState
from throughline.cli.commands_chat import chat
from throughline.cli.screen import Screen, TerminalLines


@pytest.fixture
def keyboard() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


@pytest.fixture
async def state(service: CommandStage) -> AsyncIterator[ChatState]:
    async with service.client() as client:
        yield ChatState(client, Screen(out=StringIO(), err=StringIO()), "assistant")


async def test_typed_lines_go_into_a_history_only_the_user_can_read(keyboard: PipeInput, tmp_path: Path) -> None:
    history = tmp_path / "state" / "history"
    keyboard.send_text("hello\r")

    assert await TerminalLines(history).read() == "hello"
    assert "+hello" in history.read_text("utf-8")
    assert history.stat().st_mode & 0o077 == 0


async def test_an_answer_to_a_question_is_edited_and_no_part_of_the_history(
    keyboard: PipeInput, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    lines = TerminalLines(history)
    keyboard.send_text("\x7f\x7f}\r")

    assert await lines.read("arguments> ", '{"a": 12}') == '{"a": 1}'
    keyboard.send_text("\x04")
    assert await lines.read("approve? ") is None
    assert history.read_text("utf-8") == ""


async def test_control_d_is_the_end_and_control_c_an_interrupt(keyboard: PipeInput, tmp_path: Path) -> None:
    lines = TerminalLines(tmp_path / "history")

    keyboard.send_text("\x04")
    assert await lines.read() is None
    keyboard.send_text("half\x03")
    with pytest.raises(KeyboardInterrupt):
        await lines.read()


async def test_a_history_that_cannot_be_written_is_kept_in_memory(keyboard: PipeInput, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    keyboard.send_text("hello\r")

    assert await TerminalLines(tmp_path / "file" / "history").read() == "hello"


async def test_at_a_terminal_an_error_or_control_c_does_not_end_the_chat(state: ChatState) -> None:
    await chat(state, TypedLines(["/nonsense", KeyboardInterrupt(), "  ", "hello", "/quit", "never"]))

    assert state.session is not None
    assert state.is_over


class ClosedPipe(StringIO):
    """Output nobody reads any more."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_reader_that_goes_away_is_an_ordinary_error_on_the_way_out() -> None:
    with pytest.raises(BrokenPipeError):
        Screen(out=ClosedPipe()).write("hello")
