"""Streams of random runs, read as the AI SDK reads them; and parts of them that a client has not seen."""

import asyncio
from typing import cast

from hypothesis import given

from fakes.ai_sdk_client import read_answer, read_chunks, said
from fakes.played_runs import PlayedRun, runs
from throughline.ai_sdk.chunks import ChunkPrinter
from throughline.chat_protocols.continue_chat import ChatTurn
from throughline.chat_protocols.follow_part import FollowedPart
from throughline.domain.errors import InvalidInput
from throughline.domain.events import RunEnded, RunEvent
from throughline.domain.run import RunStatus
from throughline.http.call import Call


def printer_of(played: PlayedRun) -> ChunkPrinter:
    """Return a printer that has no database: the events of these runs are complete."""
    return ChunkPrinter(cast("Call", None), ChatTurn(0, FollowedPart(played.run)), str(played.run.id))


async def printed(played: PlayedRun) -> str:
    printer = printer_of(played)
    sent = [await printer.begin()]
    for place, event in enumerate(played.events, start=1):
        sent.append(await printer.encode_event(RunEvent(played.run.id, place, event)))
    return b"".join(sent).decode()


@given(runs())
def test_the_answer_of_a_run_is_what_the_run_has_stored(played: PlayedRun) -> None:
    answer = read_answer(read_chunks(asyncio.run(printed(played))))

    last = played.events[-1]
    assert said(answer.message) == played.said
    assert bool(answer.error) is (isinstance(last, RunEnded) and last.run.status is RunStatus.FAILED)
    assert answer.is_aborted is (isinstance(last, RunEnded) and last.run.status is RunStatus.CANCELLED)
    assert [part for part in answer.parts if part.get("state") in {"streaming", "input-streaming"}] == []


@given(runs())
def test_a_stream_that_an_error_ends_says_so(played: PlayedRun) -> None:
    printer = printer_of(played)

    sent = asyncio.run(printer.begin()) + printer.fail(InvalidInput("It is wrong."))

    assert read_answer(read_chunks(sent.decode())).error == "It is wrong."
