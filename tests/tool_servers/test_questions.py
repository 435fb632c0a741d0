"""Servers that ask a person before they complete a call, in the way of each revision; progress and images of calls."""

import os
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import waiting
from fakes.tool_servers import outcome_of, served_call
from fakes.waiting import HANG_SECONDS
from throughline.domain.elicitation import Elicitation, read_input
from throughline.domain.message import ImageBlock
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import CallProgress, ServedCall, ToolServer
from throughline.tools.mcp_client.bounds import Bounds
from throughline.tools.mcp_client.connections import McpConnections

pytest.importorskip("mcp.client.client", reason="the extra `mcp` is not installed")

FAKES = Path(waiting.__file__).parent
BOUNDS = Bounds(wait_seconds=HANG_SECONDS, first_pause_seconds=0.01, relist_seconds=0.01, close_seconds=0.2)
VARIABLES = {"PATH": os.environ["PATH"], "HERE": os.pathsep.join(path for path in sys.path if path)}


def program(*arguments: str, **more: object) -> ToolServer:
    command = (sys.executable, str(FAKES / "mcp_server.py"), *arguments)
    return ToolServer("fake", command=command, variables=(("PYTHONPATH", "HERE"),), **more)  # type: ignore[arg-type]  # fields


NEW, OLD = program(), program("", "old")


def open_servers() -> McpConnections:
    return McpConnections(lambda name: VARIABLES.get(name, ""), 100_000, bounds=BOUNDS)


@pytest.fixture
async def servers() -> AsyncGenerator[McpConnections]:
    async with open_servers() as made:
        yield made


async def ask(servers: McpConnections, call: ServedCall) -> Elicitation:
    asked = await servers.call(call)
    assert isinstance(asked, Elicitation), asked
    return asked


def answered(call: ServedCall, asked: Elicitation, text: str) -> ServedCall:
    assert asked.open_request is not None
    return replace(call, elicitation=asked.with_answer(read_input(asked.open_request, text)))


async def test_a_call_goes_on_with_the_answers_to_its_questions(servers: McpConnections) -> None:
    call = await served_call(servers, NEW, "book")

    where = await ask(servers, call)
    sure = await ask(servers, answered(call, where, '{"city": "Husum", "seats": 2}'))
    outcome = await outcome_of(servers, answered(call, sure, "yes"))

    assert [request.message for request in (*where.requests, *sure.requests)] == ["Where?", "Really Husum?"]
    assert (where.ended_as, list(where.requests[0].fields)) == (None, ["city", "seats"])
    assert outcome == ToolOutcome("2 in Husum, sure: True, call 1")


async def test_answers_are_given_again_to_a_server_that_has_forgotten_its_questions(servers: McpConnections) -> None:
    call = await served_call(servers, NEW, "book")
    where = await ask(servers, call)
    sure = await ask(servers, answered(call, where, '{"city": "Husum", "seats": 2}'))
    await servers.__aexit__(None, None, None)

    async with open_servers() as later:
        outcome = await outcome_of(later, answered(call, sure, "no"))

    assert outcome == ToolOutcome("2 in Husum, sure: False, call 1")


async def test_a_question_that_is_no_longer_equal_is_asked_again(servers: McpConnections) -> None:
    call = await served_call(servers, NEW, "book")
    where = await ask(servers, call)
    changed = replace(where, requests=(replace(where.requests[0], message="Where now?"),), state="forgotten")

    again = await ask(servers, answered(call, changed, '{"city": "Husum", "seats": 2}'))

    assert again.open_request == where.open_request


async def test_a_declined_question_is_told_to_the_server(servers: McpConnections) -> None:
    call = await served_call(servers, NEW, "book")
    where = await ask(servers, call)

    outcome = await outcome_of(servers, answered(call, where, "decline"))

    assert outcome.is_error
    assert "elicitation was decline" in outcome.text


async def test_a_server_of_an_older_revision_is_called_again_with_each_answer(servers: McpConnections) -> None:
    call = await served_call(servers, OLD, "book")

    where = await ask(servers, call)
    sure = await ask(servers, answered(call, where, '{"city": "Husum", "seats": 2}'))
    outcome = await outcome_of(servers, answered(call, sure, "yes"))

    assert where.ended_as is not None
    assert "elicitation was cancel" in where.ended_as
    assert [request.message for request in (*where.requests, *sure.requests)] == ["Where?", "Really Husum?"]
    assert outcome == ToolOutcome("2 in Husum, sure: True, call 1")


async def test_a_question_among_several_calls_is_shown_to_nobody(servers: McpConnections) -> None:
    book, hang = await served_call(servers, OLD, "book"), await served_call(servers, OLD, "hang")
    short = replace(hang, tool=replace(hang.tool, server=replace(hang.tool.server, timeout_seconds=0.1)))
    await outcome_of(servers, short)

    outcome = await outcome_of(servers, book)

    assert outcome.is_error
    assert "it may belong to another call" in outcome.text


async def test_a_server_may_come_back_without_a_question(servers: McpConnections) -> None:
    assert await outcome_of(servers, await served_call(servers, NEW, "comes_back")) == ToolOutcome("came back")


@pytest.mark.parametrize("server", [NEW, OLD], ids=["new", "old"])
async def test_progress_is_reported_while_it_grows(servers: McpConnections, server: ToolServer) -> None:
    told: list[CallProgress] = []

    outcome = await outcome_of(servers, await served_call(servers, server, "steps"), on_progress=told.append)

    assert outcome == ToolOutcome("done")
    assert told[0] == CallProgress(1.0, 3.0, "step 1")
    assert [one.done for one in told] == sorted({one.done for one in told})


async def test_images_of_results_are_shown_if_the_agent_wants_them(servers: McpConnections) -> None:
    without = await outcome_of(servers, await served_call(servers, NEW, "blocks"))
    shown = await outcome_of(servers, await served_call(servers, program(images=True), "blocks"))

    assert without.images == ()
    assert "[image image/png, 12 kB]" in without.text
    assert shown.images == (ImageBlock(f"data:image/png;base64,{'A' * 16_000}"),)
    assert "[image" not in shown.text
