"""Deletion of a response: of one part of a run, the others of which stay."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from throughline.api.http.admitted_request import Call
from throughline.api.openai.ids import ResponseRef, response_not_found
from throughline.api.openai.read_response import part_of, read_response
from throughline.api.openai.response_object import DELETED, RunResponse
from throughline.api.openai.run_parts import messages_of, newest_part
from throughline.db.runs.remove_messages import Removal, Removed
from throughline.domain.errors import NotFound, SessionBusy
from throughline.domain.ids import RunId
from throughline.domain.json_types import JsonValue
from throughline.domain.message import REDACTED_TEXT, Message
from throughline.domain.run import Run, RunInput, RunStatus


async def remove_response(call: Call, ref: ResponseRef) -> None:
    """Redact the response's messages, or erase its session if no message without redaction is left in it.

    The turn of a response that waits is cancelled first, because nothing can follow a deleted response. A refused
    deletion cancels nothing.

    Raises NotFound. Raises SessionBusy while the response is not over, or while another turn of its session, or of one
    that quotes it, goes on or waits.
    """
    run = (await read_response(call, ref)).run
    if run.status.needs_worker and newest_part(run) == ref.part:
        raise _not_over(ref, run)
    wanted = Removal(
        call.owner_id,
        run.session_id,
        run.id,
        partial(_select_removed, ref),
        cancels_wait=newest_part(run) == ref.part,
        actor=call.principal.actor,
    )
    try:
        await call.services.database.runs.remove_messages(wanted)
    except SessionBusy as busy:
        unfinished = await call.services.database.runs.get_run(call.owner_id, RunId(UUID(busy.run_id)))
        raise _not_over(ref, unfinished) from None
    except NotFound:  # another request has erased the session meanwhile
        raise response_not_found(str(ref)) from None


def _select_removed(ref: ResponseRef, run: Run, messages: Sequence[Message]) -> Removed:
    """Return the ids of the response's messages, and the run's input without its texts.

    Raises NotFound if the run has no such part, or it is deleted.
    """
    response = part_of(run, messages, None, ref.part)
    return Removed([message.id for message in messages_of(response.part, messages)], _kept_input(response))


def _kept_input(response: RunResponse) -> RunInput:
    """Return the run's input without the texts of the response's request; without its tools if no part is left.

    What the part had used stays: the usage of the part before it is counted up to there. Instructions are those of the
    last part.
    """
    given, number = response.run.input, response.part.number
    kept = given if number else replace(given, content=REDACTED_TEXT, metadata={})
    if response.part.is_last:
        kept = replace(kept, overrides=replace(kept.overrides, instructions=None))
    known = given.echo.get("parts")
    parts: list[JsonValue] = list(known) if isinstance(known, list) else []
    parts += [{} for _ in range(number + 1 - len(parts))]
    used = {"used": response.echo["used"]} if "used" in response.echo else {}
    parts[number] = {DELETED: True, **used}
    is_known = response.part.is_last or number + 1 < len(parts)
    if is_known and all(isinstance(part, dict) and part.get(DELETED) is True for part in parts):
        kept = RunInput(REDACTED_TEXT, steps_brought=given.steps_brought)
    return replace(kept, echo={"parts": parts})


def _not_over(ref: ResponseRef, run: Run) -> SessionBusy:
    """Return the error that names the response of the run which is not over."""
    unfinished = ResponseRef(run.id, newest_part(run))
    if run.status is RunStatus.WAITING:
        state = "waits for the outputs of its calls, or for approval. Send them, or delete it"
    else:
        state = "is not over. Wait for it, or cancel it"
    return SessionBusy(f"The response {unfinished} {state}, then delete {ref}.", run_id=str(run.id))
