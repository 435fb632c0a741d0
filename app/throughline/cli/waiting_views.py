"""Drawing of waiting runs: what their calls wait for, and how to resume them."""

from collections.abc import Mapping

from rich.text import Text

from throughline.cli.printable import moment, one_line, printable
from throughline.domain.tool import readable_arguments
from throughline.domain.waiting import WaitKind, read_question
from throughline.wire.runs import RunOut, WaitingCall

SHOWN_CHARACTERS, SHOWN_LINES = 4_000, 60
SHOWN_NAME = 64
WAITS_FOR: Mapping[str, str] = {
    WaitKind.APPROVAL: "an approval of {name}",
    WaitKind.ANSWER: "the answer to a question",
    WaitKind.TOOL_RESULT: "the result of {name}, which the program that sent the message runs",
}
OPTIONS: Mapping[str, str] = {
    WaitKind.APPROVAL: "--approve, --reject or --edit",
    WaitKind.ANSWER: "--answer",
}


def draw_call(call: WaitingCall, *, full_command: str = "") -> Text:
    """Return the question that the call asks a person: the tool with its arguments, or the question with its options.

    With `full_command`, the command that shows all of it, long arguments and questions are cut.
    """
    if call.kind == WaitKind.ANSWER:
        question = read_question(call.arguments)
        options = "".join(f"\n  {number}  {option}" for number, option in enumerate(question.options, start=1))
        return Text("? ", style="bold") + Text(_bounded(printable(f"{question.text}{options}"), full_command))
    name = one_line(call.name, limit=SHOWN_NAME)
    arguments = _bounded(printable(readable_arguments(call.arguments)), full_command)
    return Text(f"{name} ", style="bold") + Text(arguments)


def what_it_waits_for(run: RunOut) -> str:
    """Return a sentence that says what each open call of a waiting run waits for, and until when."""
    assert run.waiting_for is not None, "the run waits"
    calls = ", ".join(_waits_for(call) for call in run.waiting_for.calls)
    return f"The turn waits for {calls}, until {moment(run.waiting_for.until)}."


def how_to_resume(run: RunOut) -> str:
    """Return a sentence that names the command, or for results of tools the route, by which the run goes on."""
    assert run.waiting_for is not None, "the run waits"
    kinds = {call.kind for call in run.waiting_for.calls}
    options = [option for kind, option in OPTIONS.items() if kind in kinds]
    if not options:
        return f"That program sends it to POST /v1/runs/{run.id}/resume."
    return f"`throughline runs resume {run.id}` with {' or '.join(options)} goes on."


def _waits_for(call: WaitingCall) -> str:
    return WAITS_FOR.get(call.kind, "something from outside").format(name=one_line(call.name, limit=SHOWN_NAME))


def _bounded(text: str, full_command: str) -> str:
    """Return the beginning of the text, and what shows the rest; the whole text if `full_command` is empty."""
    shown = "\n".join(text[:SHOWN_CHARACTERS].split("\n")[:SHOWN_LINES])
    if not full_command or len(shown) == len(text):
        return text
    return f"{shown}\n… {len(text) - len(shown):,} more characters: {full_command}"
