"""Questions at the terminal about the calls of a waiting run: approvals, and answers that the model asked for."""

import httpx

from throughline.cli.chat_state import ChatState
from throughline.cli.dependencies import LineReader
from throughline.cli.failures import RequestRefused, TurnWaits
from throughline.cli.screen import Screen
from throughline.cli.waiting_views import draw_call, how_to_resume, what_it_waits_for
from throughline.domain.errors import InvalidInput
from throughline.domain.json_types import JsonObject
from throughline.domain.text import is_blank
from throughline.domain.tool import compact_object, read_arguments
from throughline.domain.waiting import Question, WaitKind, read_question
from throughline.wire.json_shape import JsonDict
from throughline.wire.runs import RunOut, WaitingCall

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
        elif answer.isdecimal() and 1 <= int(answer[:3]) <= len(question.options):
            return {"output": question.options[int(answer) - 1]}
        else:
            return {"output": answer}
    return None


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
