"""`throughline status`: what is shown fits the screen, JSON says the same, and the exit code says whether to look."""

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.text import Text

from fakes.command_stage import IDLE_SERVICE, CommandStage, FakeWorld, TypedLines
from fakes.programs import environment_for_programs
from throughline.agents.registry import AgentDefaults, load_agents
from throughline.cli.chat.command import chat
from throughline.cli.chat.state import ChatState
from throughline.cli.commands_status import draw_status, duration
from throughline.cli.dependencies import LocalOptions
from throughline.cli.printable import moment, one_line, printable, to_the_second
from throughline.cli.screen import Screen, TerminalLines
from throughline.domain.basic_types import ProcessId
from throughline.domain.replica import ReplicaReport
from throughline.domain.service_status import (
    AgentFileError,
    AgentFiles,
    AgentOrigin,
    HeldRuns,
    ModelBreaker,
    Process,
    ProcessKind,
    ProcessReport,
    ProcessState,
    QueueState,
    RefusedAgentFiles,
    ServiceStatus,
    WorkQueue,
)
from throughline.domain.usage_report import CallPurpose
from throughline.execution.call_plugin import add_plugin_folder
from throughline.tools.make_function_tool import CallLimits
from throughline.tools.toolbox import ToolBox
from throughline.wire.service import ServiceStatusOut, status_json

Throughline = Callable[..., Result]
TIME = datetime(2026, 5, 4, 12, tzinfo=UTC)
TURNS = ProcessState(concurrency=500, open_turns=12, jobs_in_hand=2, is_claiming=True, is_listening=True)
NO_TURNS = ProcessState(concurrency=0, open_turns=0, jobs_in_hand=0, is_claiming=False, is_listening=False)


def noted(number: int, kind: ProcessKind, state: ProcessState, *, is_silent: bool = False) -> ProcessReport:
    process = Process(ProcessId(UUID(int=number)), kind, f"a-pod-of-a-cluster-{number}:1:{number:08x}", "0.1.0")
    return ProcessReport(process, state, TIME, TIME, 7261, 3661 if is_silent else 2, is_silent=is_silent)


BUSY = ServiceStatus(
    schema="0019",
    processes=(
        noted(1, ProcessKind.SERVE, NO_TURNS),
        noted(2, ProcessKind.WORKER, TURNS),
        noted(3, ProcessKind.WORKER, TURNS, is_silent=True),
    ),
    queued=QueueState(1_234, 75.9),
    held=(
        HeldRuns("a-pod-of-a-cluster-3:1:00000003", runs=4, expired=3, lease_seconds=-5.2, oldest_seconds=300),
        HeldRuns("a-pod-of-a-cluster-2:1:00000002", runs=12, expired=0, lease_seconds=6.5, oldest_seconds=20),
    ),
    jobs=(WorkQueue("prepare_summary", QueueState(5, 3.0), in_hand=2, failed=1, retrying=4),),
    slack=WorkQueue("slack", QueueState(0, None), in_hand=1, failed=0),
)
STUCK = replace(BUSY, processes=BUSY.processes[:1], held=())


def drawn(status: ServiceStatus, width: int) -> list[str]:
    out = StringIO()
    screen = Screen(out=out, err=StringIO(), width=width)
    for drawing in draw_status(ServiceStatusOut.model_validate(status_json(status))):
        screen.draw(drawing)
    return printable(out.getvalue()).splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_shown_fits_the_screen_and_loses_nothing(width: int) -> None:
    lines = drawn(BUSY, width)
    whole = "".join("".join(lines).split())

    assert max(len(line.rstrip()) for line in lines) <= width
    for told in (
        "12/500",
        "2h 1m",
        "1234, the oldest for 1m 15s",
        "3 EXPIRED",
        "expired 5s ago",
        "6s",
        "silent",
        "0.1.0",
    ):
        assert told.replace(" ", "") in whole


def test_the_replica_is_shown_with_its_age_or_with_why_it_is_not_used() -> None:
    answers = drawn(replace(BUSY, replica=ReplicaReport("pg2:5432", "answers", TIME)), 120)
    late = drawn(replace(BUSY, replica=ReplicaReport("pg2:5432", "late")), 120)

    assert answers[-1].rstrip() == f"Replica pg2:5432: answers, with changes until {to_the_second(TIME)}"
    assert late[-1].rstrip() == "Replica pg2:5432: the primary answers instead (late)"


def test_on_a_wide_screen_each_process_is_one_line() -> None:
    lines = drawn(BUSY, 120)

    assert [line.split()[0] for line in lines[2:5]] == ["serve", "worker", "worker"]
    assert "receives no notifications" in lines[2]
    assert lines[3].split()[1:2] == ["a-pod-of-a-cluster-2:1:00000002"]
    assert lines[3].rstrip().endswith("ok")


def test_of_many_silent_processes_the_last_are_shown_and_the_others_counted() -> None:
    dead = [noted(number, ProcessKind.WORKER, TURNS, is_silent=True) for number in range(10, 50)]
    ages = [replace(one, since_heartbeat_seconds=60.0 * age) for age, one in enumerate(dead, start=1)]

    lines = drawn(replace(BUSY, processes=(*BUSY.processes[:2], *ages)), 120)

    assert lines[0].startswith("Processes: 2, taking turns: 1")
    assert [line.split()[1][:22] for line in lines[4:9]] == [
        f"a-pod-of-a-cluster-{number}:" for number in range(10, 15)
    ]
    assert lines[9].startswith("and 35 more")


def test_leases_that_are_over_are_shown_first() -> None:
    lines = drawn(BUSY, 120)
    first = next(number for number, line in enumerate(lines) if line.startswith("Held by"))

    assert "EXPIRED" in lines[first + 1]
    assert lines[first + 2].rstrip().endswith("ok")


def test_processes_of_several_versions_are_told_apart() -> None:
    newer = replace(BUSY.processes[1], process=replace(BUSY.processes[1].process, version="0.2.0"))

    lines = drawn(replace(BUSY, processes=(*BUSY.processes[:1], newer)), 120)

    assert "0.1.0, 0.2.0" in lines[0]
    assert lines[3].rstrip().endswith("ok, 0.2.0")


def test_an_idle_service_is_no_failure(world: FakeWorld, throughline: Throughline, tmp_path: Path) -> None:
    world.status = replace(IDLE_SERVICE, database="chat at db:5432 (DATABASE_URL)")
    result = throughline("status", "--data-dir", str(tmp_path))

    assert result.exit_code == 0
    assert result.stdout.startswith("Database: chat at db:5432 (DATABASE_URL)\n")
    assert "Processes: 0" in result.stdout
    assert "Waiting turns: 0" in result.stdout
    assert world.opened == [LocalOptions(tmp_path)]


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_turns_that_nobody_can_take_are_a_failure_that_says_what_to_do(
    world: FakeWorld, throughline: Throughline, arguments: tuple[str, ...]
) -> None:
    world.status = STUCK

    result = throughline("status", *arguments)

    assert result.exit_code == 1
    assert "1234" in result.stdout
    assert "throughline worker" in result.stderr


def test_json_holds_all_of_it(world: FakeWorld, throughline: Throughline) -> None:
    world.status = BUSY

    result = throughline("status", "--json")
    found = json.loads(result.stdout)

    assert result.exit_code == 0
    assert set(found) == {field.alias or name for name, field in ServiceStatusOut.model_fields.items()}
    assert found["processes"][1] == {
        "id": str(UUID(int=2)),
        "kind": "worker",
        "name": "a-pod-of-a-cluster-2:1:00000002",
        "version": "0.1.0",
        "started_at": "2026-05-04T12:00:00+00:00",
        "heartbeat_at": "2026-05-04T12:00:00+00:00",
        "up_seconds": 7261,
        "since_heartbeat_seconds": 2,
        "is_silent": False,
        "takes_turns": True,
        "concurrency": 500,
        "open_turns": 12,
        "jobs_in_hand": 2,
        "is_listening": True,
    }
    assert found["queued"] == {"waiting": 1_234, "oldest_seconds": 75.9}
    assert found["held"][0]["expired"] == 3
    assert found["jobs"] == [
        {"kind": "prepare_summary", "waiting": 5, "oldest_seconds": 3.0, "retrying": 4, "in_hand": 2, "failed": 1}
    ]
    assert found["slack"]["in_hand"] == 1
    assert (found["breakers"], found["agent_files"]) == (None, None)
    world.status = IDLE_SERVICE
    assert json.loads(throughline("status", "--json").stdout)["slack"] is None


async def test_the_status_of_a_service_elsewhere_is_asked_over_rest(service: CommandStage) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with service.api.serving(listener):
        shown = await service.run("status", "--url", url)
        as_json = await service.run("status", "--url", url, "--json")

    assert (shown.exit_code, as_json.exit_code) == (0, 0), shown.output
    assert shown.stdout.startswith("Database: played\nProcesses: 0")
    assert json.loads(as_json.stdout)["breakers"] == []
    assert service.world.opened == []


def test_breakers_are_shown_with_the_rest_of_their_pause() -> None:
    breakers = (
        ModelBreaker("openai:a-model", CallPurpose.ANSWER, "open", 42.5),
        ModelBreaker("openai:a-model", CallPurpose.SUMMARY, "half_open", 0.0),
    )

    lines = drawn(replace(BUSY, breakers=breakers), 80)

    assert lines[-2].split() == ["openai:a-model", "answer", "open", "42s"]
    assert lines[-1].split() == ["openai:a-model", "summary", "half", "open", "–"]


def test_agents_are_shown_with_their_files_and_what_is_wrong_with_those() -> None:
    origins = (AgentOrigin("assistant", None, TIME), AgentOrigin("writer", "writer.yaml", TIME))
    errors = (AgentFileError("new.yaml", "name: missing; write it"), AgentFileError(None, "agent writer: no model"))
    files = AgentFiles(origins, RefusedAgentFiles(TIME, errors))

    lines = drawn(replace(BUSY, agent_files=files), 80)

    assert lines[-5].split()[:2] == ["assistant", "(comes"]
    assert lines[-4].split()[:2] == ["writer", "writer.yaml"]
    assert lines[-3].startswith("Agent files refused 2026-05-04")
    assert [line.rstrip() for line in lines[-2:]] == ["new.yaml: name: missing; write it", "agent writer: no model"]
    assert "refused" not in "".join(drawn(replace(BUSY, agent_files=replace(files, refused=None)), 80))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-1, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m 0s"), (3_599, "59m 59s"), (3_600, "1h 0m"), (200_000, "2d 7h")],
)
def test_ages_are_told_in_their_two_largest_units(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_what_is_written_is_taken_as_it_is(
    throughline: Throughline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "none"))  # the path of modules is as before afterwards
    result = throughline("agents", "new", "my-writer", "--dir", str(tmp_path / "mine"))
    agent = load_agents([tmp_path / "mine"], AgentDefaults(usage_threshold=0.8, summary_model="")).get("my-writer")
    add_plugin_folder(tmp_path / "mine")

    specs = ToolBox((), CallLimits(5, 1000)).specs(agent.tools[1:])

    assert result.exit_code == 0, result.output
    assert [spec.name for spec in specs] == ["my_writer_word_count"]
    assert f"AGENTS_DIR={tmp_path / 'mine'} throughline chat my-writer" in result.stderr


def test_no_file_is_overwritten(throughline: Throughline, tmp_path: Path) -> None:
    (tmp_path / "writer_tools.py").write_text("mine")

    result = throughline("agents", "new", "writer", "--dir", str(tmp_path))

    assert result.exit_code == 1
    assert "writer_tools.py: exists already" in result.stderr
    assert (tmp_path / "writer_tools.py").read_text() == "mine"
    assert not (tmp_path / "writer.yaml").exists()


@pytest.mark.parametrize("name", ["Writer", "1st", "../x", "a b", ""])
def test_a_name_that_no_agent_may_have_is_refused(throughline: Throughline, tmp_path: Path, name: str) -> None:
    result = throughline("agents", "new", name, "--dir", str(tmp_path))

    assert result.exit_code == 1
    assert "cannot be an agent's name" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("name", ["app", "db", "tools", "settings"])
def test_a_package_of_the_users_breaks_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("", encoding="utf-8")
    environment = environment_for_programs()
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), environment["PYTHONPATH"]))

    command = [sys.executable, "-c", "from throughline.main import main; main()", "--help"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert told.returncode == 0, told.stderr
    assert "serve" in told.stdout


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


async def test_a_line_may_begin_as_a_text_of_several_lines(keyboard: PipeInput, tmp_path: Path) -> None:
    keyboard.send_text("!\r")

    assert await TerminalLines(tmp_path / "history").read(text="two\nlines") == "two\nlines!"


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


LONG = "The service at http://127.0.0.1:8000 did not answer in time. Try again, or look at the log of the service."


class Terminal(StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


def told_at(err: StringIO, *, width: int, command: str = "") -> list[str]:
    Screen(out=StringIO(), err=err, width=width).note(LONG, command=command)
    return printable(err.getvalue()).splitlines()


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_note_and_an_error_break_between_words_at_a_terminal(width: int) -> None:
    err = Terminal()
    Screen(out=StringIO(), err=err, width=width).error(LONG)

    for lines in (told_at(Terminal(), width=width), printable(err.getvalue()).splitlines()):
        assert max(map(len, lines)) <= width
        assert LONG in " ".join(lines)


def test_a_line_of_result_breaks_between_words_at_a_terminal_alone() -> None:
    screen, pipe = Terminal(), StringIO()
    for out in (screen, pipe):
        Screen(out=out, err=StringIO(), width=40).say(f"  1  two  {LONG}")

    lines = printable(screen.getvalue()).splitlines()
    assert lines[0].startswith("  1  two  The service")
    assert max(map(len, lines)) <= 40
    assert pipe.getvalue().splitlines() == [f"  1  two  {LONG}"]


def test_a_drawn_text_breaks_between_words_at_a_terminal_alone() -> None:
    message = Text("#1 user ", style="bold") + Text(f"{LONG}\n    indented words")
    screen, pipe = Terminal(), StringIO()
    for out in (screen, pipe):
        Screen(out=out, err=StringIO(), width=40).draw(message)

    *lines, indented = printable(screen.getvalue()).splitlines()
    assert " ".join(line.rstrip() for line in lines) == f"#1 user {LONG}"
    assert max(map(len, lines)) <= 40
    assert indented == "    indented words"
    assert pipe.getvalue().splitlines() == message.plain.splitlines()


def test_in_a_pipe_a_note_stays_one_line() -> None:
    assert told_at(StringIO(), width=30) == [f"· {LONG}"]


def test_a_command_to_be_copied_is_never_broken() -> None:
    command = "throughline chat --session 00000000-0000-0000-0000-000000000001 --url http://127.0.0.1:8000"

    assert told_at(Terminal(), width=60, command=command)[-1] == f"  {command}"
    assert told_at(Terminal(), width=400, command=command) == [f"· {LONG} {command}"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1;2qpicture\x1b\\b", "b"),
        ("a\x9b31mb\x7f\x08", "a31mb"),
        ("tab\tand\r\nline", "tab\tand\nline"),
        ("safe\u202eevas", "safeevas"),
        *((f"a{chr(mark)}b", "ab") for mark in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))),
        ("\ud800x", "\ufffdx"),
        ("[bold]kept[/bold] 日本 🙂", "[bold]kept[/bold] 日本 🙂"),
    ],
)
def test_escape_sequences_and_controls_are_taken_out_and_the_rest_is_kept(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not any((ord(sign) < 32 and sign not in "\n\t") or 0x7F <= ord(sign) < 0xA0 for sign in printable(text))


@given(st.text(), st.integers(1, 50))
def test_one_line_is_one_line_and_no_longer_than_allowed(text: str, limit: int) -> None:
    shown = one_line(text, limit=limit)

    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1


def test_a_time_no_clock_could_show_is_a_dash() -> None:
    assert moment(datetime.fromisoformat("0001-01-01T00:00:00+01:00")) == moment(None) == "–"
