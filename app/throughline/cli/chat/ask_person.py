"""Questions at the terminal about the calls of a waiting run: approvals, and answers that the model asked for."""

from collections.abc import Mapping, Sequence

import httpx
from rich.text import Text

from throughline.cli.chat.state import ChatState
from throughline.cli.client import RequestRefused, TurnWaits
from throughline.cli.dependencies import LineReader
from throughline.cli.printable import moment, one_line, printable
from throughline.cli.screen import Screen
from throughline.domain.basic_types import JsonObject
from throughline.domain.errors import InvalidInput
from throughline.domain.message import is_blank
from throughline.domain.tool import (
    Question,
    WaitKind,
    compact_object,
    read_arguments,
    read_question,
    readable_arguments,
)
from throughline.wire.events import RunOut, WaitingCall
from throughline.wire.json_shape import JsonDict

SHOWN_CHARACTERS, SHOWN_LINES = 4_000, 60
SHOWN_NAME = 64
MAX_DIGITS = 4
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


ASKED_KINDS = (WaitKind.APPROVAL, WaitKind.ANSWER)
APPROVAL = "approve? [y]es, [n]o, [e]dit> "
REASON = "reason (may be empty)> "
ARGUMENTS = "arguments> "
ANSWER = "answer> "
LEFT = "The turn waits on. /pending asks again, /cancel ends it."


async def ask_and_resume(state: ChatState, run_id: str) -> bool:
    """Ask what each call of the run waits for, and resume the run. Return whether it goes on.

    False if the user left a question, or if only the client can give what is missing. Raises TurnWaits if nobody types
    at a terminal, and the errors of the client.
    """
    run: RunOut = await state.client.get_run(run_id)
    while run.waiting_for is not None:
        call = next((call for call in run.waiting_for.calls if call.kind in ASKED_KINDS), None)
        if state.lines is None:
            _show_calls(state.screen, run)
            raise TurnWaits(f"{what_it_waits_for(run)} {how_to_resume(run)}")
        if call is None:
            state.screen.warn(f"{what_it_waits_for(run)} {how_to_resume(run)} {LEFT}")
            return False
        given = await _ask(state.screen, state.lines, call, run)
        if given is None:
            state.screen.note(LEFT)
            return False
        run = await _send_decision(state, run, {"call_id": call.id, **given})
    return True


def _show_calls(screen: Screen, run: RunOut) -> None:
    for call in () if run.waiting_for is None else run.waiting_for.calls:
        screen.note(draw_call(call, full_command=f"throughline runs show {run.id}").plain)


async def _send_decision(state: ChatState, run: RunOut, given: JsonObject) -> RunOut:
    """Give the call what the user decided, and return the run. A refusal is printed: the run may wait no more."""
    try:
        return await state.client.resume_run(run.id, given)
    except RequestRefused as refused:
        if refused.status not in {httpx.codes.CONFLICT, httpx.codes.UNPROCESSABLE_ENTITY}:
            raise
        state.screen.error(refused.detail)
    return await state.client.get_run(run.id)


async def _ask(screen: Screen, lines: LineReader, call: WaitingCall, run: RunOut) -> JsonDict | None:
    """Return what the user gives the call, as a member of the request; None for Ctrl-C and Ctrl-D."""
    screen.draw(draw_call(call, full_command=f"throughline runs show {run.id}"))
    try:
        if call.kind == WaitKind.ANSWER:
            return await _ask_question(screen, lines, read_question(call.arguments))
        return await _ask_approval(screen, lines, call)
    except KeyboardInterrupt:
        return None


async def _ask_question(screen: Screen, lines: LineReader, question: Question) -> JsonDict | None:
    while (typed := await lines.read(ANSWER)) is not None:
        answer = typed.strip()
        if not answer:
            screen.note("write an answer; Ctrl-D leaves the question")
        else:
            return {"output": chosen_option(question.options, answer)}
    return None


def chosen_option(options: Sequence[str], answer: str) -> str:
    """Return the option with the number that was typed, unless the answer is an option itself; else the answer."""
    is_number = answer not in options and answer.isdecimal() and len(answer) <= MAX_DIGITS
    return options[int(answer) - 1] if is_number and 1 <= int(answer) <= len(options) else answer


async def _ask_approval(screen: Screen, lines: LineReader, call: WaitingCall) -> JsonDict | None:
    while (typed := await lines.read(APPROVAL)) is not None:
        match typed.strip().lower():
            case "y" | "yes":
                return {"decision": "approve"}
            case "n" | "no":
                reason = await lines.read(REASON)
                return None if reason is None else {"decision": "reject", "reason": reason.strip()}
            case "e" | "edit":
                if arguments := await _edited(screen, lines, call):
                    return {"decision": "edit", "arguments": arguments}
            case _:
                screen.note("write y, n or e; Ctrl-D leaves the question")
    return None


async def _edited(screen: Screen, lines: LineReader, call: WaitingCall) -> JsonDict | None:
    """Return the arguments as the user edited them, None for a blank line or Ctrl-D."""
    text = compact_object(call.arguments)
    while (typed := await lines.read(ARGUMENTS, text)) and not is_blank(typed):
        try:
            return read_arguments(typed)
        except InvalidInput as error:
            screen.error(error.detail)
        text = typed
    return None
