"""Reasoning at the command line: a remark while the model thinks, and the text on demand."""

import json
from pathlib import Path

from fakes.command_stage import CommandStage
from fakes.event_log import MESSAGE_ID
from fakes.scripted_turns import Script, said
from throughline.domain.events import MessageDelta, ReasoningDelta
from throughline.domain.reasoning import Reasoning

THINKING = Script(
    (
        ReasoningDelta(MESSAGE_ID, "They "),
        ReasoningDelta(MESSAGE_ID, "greet me."),
        MessageDelta(MESSAGE_ID, "Hel"),
        MessageDelta(MESSAGE_ID, "lo."),
    ),
    "Hello.",
    Reasoning("They greet me.\x1b[31m"),
)


async def test_the_answer_alone_is_on_standard_output(service: CommandStage) -> None:
    service.api.turns.scripts = [THINKING]

    result = await service.run("chat", typed="hi\n")

    assert result.exit_code == 0, result.output
    assert result.stdout == "Hello.\n"
    assert result.stderr.splitlines() == ["· thinking…"]


async def test_the_last_reasoning_is_shown_on_demand_without_control_characters(service: CommandStage) -> None:
    service.api.turns.scripts = [THINKING, said("Again")]

    result = await service.run("chat", typed="hi\nonce more\n/reasoning\n/reasoning #2\n")

    assert result.exit_code == 0, result.output
    shown = [line for line in result.stdout.splitlines() if "greet" in line]
    assert len(shown) == 2
    assert all("\x1b" not in line for line in shown)
    assert result.stderr.count("before #2") == 2


async def test_a_message_without_reasoning_is_said_to_have_none(service: CommandStage) -> None:
    service.api.turns.scripts = [THINKING, said("Again")]

    for argument, expected in (
        ("4", "There is no reasoning to show"),
        ("x", "Write /reasoning with a message's number"),
    ):
        service.api.turns.scripts = [THINKING, said("Again")]
        result = await service.run("chat", typed=f"hi\nonce more\n/reasoning {argument}\n")

        assert result.exit_code == 1
        assert expected in result.stderr


async def test_an_export_by_command_has_it(service: CommandStage, tmp_path: Path) -> None:
    service.api.turns.scripts = [THINKING]
    await service.run("chat", typed="hi\n")
    ((session_id,),) = await service.sql("select id from sessions")

    result = await service.run("sessions", "export", session_id, "--output", tmp_path / "out.jsonl")

    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line.get("reasoning", "none") for line in lines[1:]] == ["none", "They greet me.\x1b[31m"]
