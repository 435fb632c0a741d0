"""The commands `throughline runs …`: one run, and what a waiting run waits for, outside of a chat."""

from collections.abc import Mapping
from uuid import UUID

import click

from throughline.cli.answer_stream import RETRY_DELAYS_SECONDS, AnswerStream
from throughline.cli.answering import print_answer
from throughline.cli.asking import ask_and_resume, draw_call, how_to_resume, what_it_waits_for
from throughline.cli.chat_state import ChatState
from throughline.cli.client import ServiceClient
from throughline.cli.connection import Target, asynchronous, open_client, target_options
from throughline.cli.printable import moment, one_line, printable
from throughline.cli.screen import Screen
from throughline.domain.errors import InvalidInput
from throughline.domain.tool import read_arguments
from throughline.wire.events import RunOut
from throughline.wire.json_shape import JsonDict

NO_REASON = ""
runs = click.Group("runs", help="Show a run; give a waiting one what it waits for.")
id_argument = click.argument("run_id", metavar="RUN", type=click.UUID)


@runs.command("show")
@id_argument
@target_options
@asynchronous
async def show(run_id: UUID, target: Target) -> None:
    """Show a run, and what it waits for."""
    screen = Screen()
    async with open_client(target) as client:
        run = await client.get_run(str(run_id))
    screen.say(f"Run      {run.id}")
    screen.say(f"Session  {run.session_id}")
    screen.say(f"Status   {one_line(run.status, limit=20)}")
    screen.say(f"Created  {moment(run.created_at)}, ended {moment(run.finished_at)}")
    if run.error is not None:
        screen.say(f"Error    {one_line(run.error.detail, limit=500)}")
    if run.waiting_for is not None:
        screen.say(what_it_waits_for(run))
        for call in run.waiting_for.calls:
            screen.say(f"Call     {printable(call.id)}")
            screen.draw(draw_call(call))
        screen.note(how_to_resume(run))


@runs.command("resume")
@id_argument
@click.option("--approve", is_flag=True, help="Let the call be run.")
@click.option("--reject", is_flag=False, flag_value=NO_REASON, metavar="[REASON]", help="Do not let the call be run.")
@click.option("--edit", metavar="JSON", help="Let the call be run with these arguments.")
@click.option("--answer", metavar="TEXT", help="Answer the question.")
@click.option("--call", "call_id", default="", metavar="ID", help="Which call, if the run waits for several.")
@target_options
@asynchronous
async def resume(run_id: UUID, call_id: str, target: Target, **options: str | bool | None) -> None:
    """Give a waiting RUN what it waits for, and print the rest of its answer.

    The exit code is 3 if the run still waits, or waits again.
    """
    given = _read_resolution(options)
    async with open_client(target, takes_turns=True) as client:
        run = await client.get_run(str(run_id))
        stream = await _seen(client, run)
        session = await client.session(run.session_id)
        state = ChatState(client, Screen(), session.agent, session=session)
        resumed = await client.resume_run(run.id, {"call_id": call_id or _only_call(run), **given})
        if resumed.waiting_for is None or await ask_and_resume(state, run.id):
            await print_answer(state, stream)


def _read_resolution(options: Mapping[str, str | bool | None]) -> JsonDict:
    """Return the member of the request that the options stand for. Raises UsageError unless exactly one is given."""
    given = [(name, value) for name, value in options.items() if value not in {None, False}]
    match given:
        case [("approve", _)]:
            return {"decision": "approve"}
        case [("reject", str(reason))]:
            return {"decision": "reject", "reason": reason}
        case [("edit", str(arguments))]:
            return {"decision": "edit", "arguments": read_arguments(arguments)}
        case [("answer", str(text))]:
            return {"output": text}
        case _:
            raise click.UsageError("Give one of --approve, --reject, --edit and --answer.")


def _only_call(run: RunOut) -> str:
    """Return the id of the call that the run waits for. Raises InvalidInput if it waits for several or none."""
    calls = [] if run.waiting_for is None else [call.id for call in run.waiting_for.calls]
    if not calls:
        raise InvalidInput(f"The run {run.id} is {run.status} and waits for nothing. `runs show` shows it.")
    if len(calls) > 1:
        raise InvalidInput(f"The run waits for several calls. Name one with --call: {', '.join(calls)}.")
    return calls[0]


async def _seen(client: ServiceClient, run: RunOut) -> AnswerStream:
    """Return the stream of what follows in a waiting run: its events until now are read and not shown."""
    stream = AnswerStream.of_run(client, run, retry_delays=RETRY_DELAYS_SECONDS)
    if run.waiting_for is not None:
        async for _ in stream.events():
            pass
    return stream
