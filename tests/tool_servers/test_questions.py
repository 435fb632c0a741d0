"""Servers that ask a person before they complete a call, in the way of each revision; progress and images of calls."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import waiting
from fakes.tool_servers import outcome_of, served_call
from fakes.waiting import HANG_SECONDS
from throughline.domain.elicitation import Elicitation, read_input
from throughline.domain.message import ImageBlock
from throughline.domain.tool import ToolOutcome
from throughline.domain.tool_server import CallProgress, ServedCall, ToolServer
from throughline.tools.make_function_tool import ToolFailed
from throughline.tools.mcp_client.bounds import Bounds
from throughline.tools.mcp_client.connections import McpConnections

pytest.importorskip("mcp.client.client", reason="the extra `mcp` is not installed")

from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ImageContent,
    InputRequiredResult,
)

from throughline.tools.mcp_client.elicitation import read_questions
from throughline.tools.mcp_client.read_result import MAX_IMAGE_CHARACTERS, MAX_IMAGES, read_result

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


def form(fields: dict[str, Any]) -> ElicitRequestFormParams:
    return ElicitRequestFormParams(message="m", requested_schema={"type": "object", "properties": fields})


def address(url: str) -> ElicitRequestURLParams:
    return ElicitRequestURLParams(message="m", url=url)


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

    async with asyncio.timeout(HANG_SECONDS):  # a new connection is sure of its calls
        while not isinstance(await servers.call(await served_call(servers, OLD, "book")), Elicitation):
            pass
    assert outcome.is_error
    assert "it may belong to another call" in outcome.text


FORM = {"type": "object", "properties": {"x": {"type": "string"}}}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (ElicitRequestFormParams(message="m", requested_schema={**FORM, "x": float("nan")}), "NaN"),
        (form({"x": {"type": ["string", "null"]}}), "that are no texts"),
        (form({"x": {"type": "object"}}), "that are no texts"),
        (form({f"x{number}": {"type": "string"} for number in range(51)}), "more than 50"),
        (form({"x": {"type": "string", "title": "\0"}}), "with NUL"),
        (address("https://paypal.example@evil.example/"), "hides where it leads"),
        (address("https://"), "none of the web"),
        (address("https://pаypal.example/"), "none of the web"),  # the first a is a Cyrillic one
        (address("file:///etc/passwd"), "none of the web"),
        (address("http://[::1"), "none of the web"),
    ],
)
def test_what_a_person_cannot_be_asked_is_told_to_the_model(asked: ElicitRequestParams, reason: str) -> None:
    with pytest.raises(ToolFailed, match=f"t was not completed: its server asks for input .*{reason}"):
        read_questions("t", InputRequiredResult(input_requests={"q": ElicitRequest(params=asked)}))


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
    assert [image.url[:34] for image in shown.images] == ["data:image/png;base64,iVBORw0KGgoA"]
    assert "[image" not in shown.text


@pytest.mark.parametrize(
    ("data", "mime_type"),
    [
        ("AAAA", "image/png"),
        ("iVBORw0KGgo=", "image/jpeg"),
        ("iVBORw0KGgo=", "image/svg+xml"),
        ("no base64", "image/png"),
    ],
)
def test_what_is_no_image_is_not_given_to_the_model(data: str, mime_type: str) -> None:
    picture, other = "iVBORw0KGgo=", ImageContent(data=data, mime_type=mime_type)
    result = CallToolResult(content=[other, ImageContent(data=picture, mime_type="image/png")])

    assert read_result(result, takes_images=True)[1] == (ImageBlock(f"data:image/png;base64,{picture}"),)


def test_as_many_images_as_are_taken_fit_into_a_message() -> None:
    assert Bounds().message_bytes > MAX_IMAGES * MAX_IMAGE_CHARACTERS
