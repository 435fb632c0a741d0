"""Responses over a WebSocket, through OpenAI's own client and a plain one."""

import asyncio
import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from openai.resources.responses.responses import AsyncResponsesConnection
from openai.types.responses import Response, ResponseCompletedEvent

from api.test_connection_limits import serving_app
from fakes.api_stage import KEYED, LOCAL, set_stage
from fakes.openai_stage import OpenAIStage, open_openai_stage
from fakes.scripted_model import Call, Fail, Hang, Say, Step
from fakes.waiting import HANG_SECONDS
from service.test_generated_clients import run
from throughline.db.database import Database
from throughline.domain.errors import ModelRejected
from throughline.domain.keys import Scope
from throughline.domain.message import Role, ToolCall
from throughline.domain.prompt import ModelRequest, Usage
from throughline.http.protocol import MAX_HEADERS, MAX_LINE_BYTES, ConnectionLimits
from throughline.openai.responses.websocket import INBOX_BYTES, MESSAGE_BYTES


def socket_address(url: str) -> str:
    return f"{url.rstrip('/').replace('http', 'ws', 1)}/v1/responses"


def address_of(stage: OpenAIStage) -> str:
    return socket_address(str(stage.http.base_url))


async def ask(socket: websockets.ClientConnection, **body: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # any field
    """Send a request and return its events, up to the last one."""
    await socket.send(json.dumps({"type": "response.create", "model": "assistant", "input": "hi", **body}))
    return await rest_of(socket)


async def rest_of(socket: websockets.ClientConnection) -> list[dict[str, Any]]:
    """Return the events up to the last one of a response."""
    events = [json.loads(await socket.recv())]
    while events[-1]["type"] not in {"response.completed", "response.failed", "response.incomplete", "error"}:
        events.append(json.loads(await socket.recv()))
    return events


def refusal(events: list[dict[str, Any]]) -> tuple[int, str, str | None]:
    assert events[-1]["type"] == "error"
    return events[-1]["status"], events[-1]["error"]["code"], events[-1]["error"]["param"]


async def next_response(connection: AsyncResponsesConnection) -> Response:
    """Return the response that the connection's next events lead to."""
    async for event in connection:
        if isinstance(event, ResponseCompletedEvent):
            return event.response
    raise AssertionError("the connection ended without a response")


async def test_openais_client_asks_and_goes_on_over_one_connection(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello Alice."), Say("Alice."))
    answers = []
    async with stage.client.responses.connect() as connection:
        previous: str | None = None
        for asked in ("I am Alice.", "Who am I?"):
            await connection.response.create(model="assistant", input=asked, previous_response_id=previous)
            response = await next_response(connection)
            answers.append(response.output_text)
            previous = response.id

    assert answers == ["Hello Alice.", "Alice."]
    assert len(stage.model.requests[1].prompt.messages) == 3


async def test_events_are_those_of_a_stream(stage: OpenAIStage) -> None:
    stage.model.script(Say("Hello there."), Say("Hello there."))
    async with websockets.connect(address_of(stage)) as socket:
        events = await ask(socket)
    streamed = [
        event.type async for event in await stage.client.responses.create(model="assistant", input="hi", stream=True)
    ]

    assert [event["type"] for event in events] == streamed
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_a_response_that_is_not_stored_goes_on_only_on_its_connection(stage: OpenAIStage) -> None:
    stage.model.script(Say("One."), Say("Two."), Say("Three."))
    async with websockets.connect(address_of(stage)) as socket:
        first = (await ask(socket, store=False))[-1]["response"]["id"]
        second = (await ask(socket, store=False, previous_response_id=first))[-1]["response"]["id"]
        again = await ask(socket, store=False, previous_response_id=first)
    async with websockets.connect(address_of(stage)) as other:
        refused = await ask(other, previous_response_id=second)

    assert [part["text"] for part in again[-1]["response"]["output"][0]["content"]] == ["Three."]
    assert refusal(refused) == (404, "previous_response_not_found", "previous_response_id")


async def test_a_failed_continuation_makes_its_response_unknown(stage: OpenAIStage) -> None:
    stage.model.script(Say("One."), Fail(ModelRejected("no")))
    async with websockets.connect(address_of(stage)) as socket:
        first = (await ask(socket, store=False))[-1]["response"]["id"]
        failed = await ask(socket, store=False, previous_response_id=first)
        refused = await ask(socket, store=False, previous_response_id=first)

    assert failed[-1]["type"] == "response.failed"
    assert refusal(refused)[1] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        ("{", "malformed_body", None),
        ("[]", "invalid_input", "type"),
        ('{"type": "session.update"}', "invalid_input", "type"),
        (b"\x00\x01", "malformed_body", None),
        ('{"type": "response.create", "model": "assistant"}', "invalid_input", "input"),
        ('{"type": "response.create", "model": "m", "input": "hi"}', "model_not_found", "model"),
        ('{"type": "response.create", "model": "assistant", "input": "hi", "background": true}', None, "background"),
    ],
)
async def test_a_wrong_message_is_refused_and_the_connection_goes_on(
    stage: OpenAIStage, sent: str | bytes, code: str | None, param: str | None
) -> None:
    stage.model.script(Say("Hello."))
    async with websockets.connect(address_of(stage)) as socket:
        await socket.send(sent)
        refused = [json.loads(await socket.recv())]
        answered = await ask(socket)

    assert refusal(refused)[2] == param
    assert code is None or refusal(refused)[1] == code
    assert answered[-1]["type"] == "response.completed"


async def test_a_connection_needs_a_key(database: Database) -> None:
    stage = set_stage(database, KEYED)
    reader = await stage.key("ada", Scope.READ)
    async with serving_app(stage.app, ConnectionLimits()) as url:
        for key, status in (("tl_unknown", 401), (reader, 403)):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(
                    socket_address(url),
                    additional_headers={"Authorization": f"Bearer {key}"},
                )
            assert refused.value.response.status_code == status
            assert json.loads(refused.value.response.body)["error"]["type"] == "invalid_request_error"


async def test_pages_of_other_origins_cannot_open_one_in_local_mode(stage: OpenAIStage) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(address_of(stage), origin=websockets.Origin("https://example.org"))

    assert refused.value.response.status_code == 403


async def test_no_other_path_becomes_a_websocket(database: Database) -> None:
    async with serving_app(set_stage(database, LOCAL).app, ConnectionLimits()) as url:
        for path, status in (("?a=b", 405), ("/", 404), ("/compact", 404), ("/../sessions", 404)):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(socket_address(url) + path)
            assert refused.value.response.status_code == status


async def test_a_head_that_the_websocket_could_not_read_stays_http(database: Database) -> None:
    many = {f"X-{number}": "x" for number in range(MAX_HEADERS)}
    async with serving_app(set_stage(database, LOCAL).app, ConnectionLimits()) as url:
        for headers in (many, {"X-Long": "x" * MAX_LINE_BYTES}):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(socket_address(url), additional_headers=headers)
            assert refused.value.response.status_code == 405


@pytest.mark.parametrize(
    "body", [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
)
async def test_an_upgrade_with_a_body_is_answered_over_http(database: Database, body: bytes) -> None:
    head = b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
    asked = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    async with serving_app(set_stage(database, LOCAL).app, ConnectionLimits()) as url:
        address = httpx.URL(url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(head + asked + body)

        async with asyncio.timeout(HANG_SECONDS):
            assert (await reader.readline()).startswith(b"HTTP/1.1 405")
        writer.close()


async def test_connections_beyond_the_limit_are_refused_as_others_are(database: Database) -> None:
    limits = ConnectionLimits(max_connections=1)
    async with serving_app(set_stage(database, LOCAL).app, limits) as url, websockets.connect(socket_address(url)):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(socket_address(url))

    assert refused.value.response.status_code == 503


async def can_connect(address: str) -> bool:
    with contextlib.suppress(websockets.InvalidStatus):
        async with websockets.connect(address):
            return True
    return False


async def test_connections_are_limited_for_each_user(database: Database) -> None:
    stage = set_stage(database, replace(LOCAL, max_websockets=2))
    async with serving_app(stage.app, ConnectionLimits()) as url:
        address = socket_address(url)
        async with websockets.connect(address):
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(address)
        async with asyncio.timeout(HANG_SECONDS):
            while not await can_connect(address):
                await asyncio.sleep(0.01)

    assert refused.value.response.status_code == 503
    assert refused.value.response.headers["retry-after"]


async def test_a_message_has_at_most_the_bytes_of_a_body(database: Database) -> None:
    stage = set_stage(database, LOCAL)
    limits = ConnectionLimits(max_message_bytes=1_000)
    async with serving_app(stage.app, limits) as url, websockets.connect(socket_address(url)) as socket:
        await socket.send("x" * 1_001)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


async def test_a_revoked_key_ends_the_connection(database: Database) -> None:
    stage = set_stage(database, KEYED)
    key = await stage.key("ada")
    async with serving_app(stage.app, ConnectionLimits()) as url:
        headers = {"Authorization": f"Bearer {key}"}
        async with websockets.connect(socket_address(url), additional_headers=headers) as socket:
            for found in await database.keys.list():
                await database.keys.revoke(found.prefix)
            refused = await ask(socket)
            with pytest.raises(websockets.ConnectionClosed):
                await socket.recv()

    assert refusal(refused)[0] == 401


async def test_pings_are_answered_while_requests_wait(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("One two.", gate=gate), Say("Three."))
    async with websockets.connect(address_of(stage), ping_interval=None) as socket:
        request = json.dumps({"type": "response.create", "model": "assistant", "input": "hi"})
        for _ in range(2):
            await socket.send(request)
        for _ in range(3):
            async with asyncio.timeout(HANG_SECONDS):
                await (await socket.ping())
        gate.set()
        ended = [(await rest_of(socket))[-1]["type"] for _ in range(2)]

    assert ended == ["response.completed"] * 2


async def test_a_client_of_which_too_much_waits_is_disconnected(stage: OpenAIStage) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("One two.", gate=gate))
    request = json.dumps({"type": "response.create", "model": "assistant", "input": "x" * INBOX_BYTES})
    async with websockets.connect(address_of(stage)) as socket:
        for _ in range(3):
            await socket.send(request)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await rest_of(socket)
    gate.set()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013


@pytest.mark.parametrize("message", ["", "é" * 700])
async def test_many_small_messages_that_wait_disconnect_a_client(stage: OpenAIStage, message: str) -> None:
    gate = asyncio.Event()
    stage.model.script(Say("One two.", gate=gate))
    async with websockets.connect(address_of(stage)) as socket:
        await socket.send(json.dumps({"type": "response.create", "model": "assistant", "input": "hi"}))
        for _ in range(INBOX_BYTES // (MESSAGE_BYTES + len(message.encode())) + 2):
            await socket.send(message)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await rest_of(socket)
    gate.set()

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013


async def test_a_silent_response_repeats_that_it_is_in_progress(database: Database) -> None:
    gate = asyncio.Event()
    async with open_openai_stage(database, config=replace(LOCAL, heartbeat_seconds=0.05)) as stage:
        stage.model.script(Say("One two.", gate=gate))
        async with websockets.connect(address_of(stage)) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "assistant", "input": "hi"}))
            repeated = 0
            while repeated < 3:
                repeated += json.loads(await socket.recv())["type"] == "response.in_progress"
            gate.set()
            last = (await rest_of(socket))[-1]

    assert last["type"] == "response.completed"


async def test_a_client_that_leaves_gives_its_place_back_while_its_turn_goes_on(database: Database) -> None:
    gate = asyncio.Event()
    config = replace(LOCAL, max_websockets=2, heartbeat_seconds=0.05)
    async with open_openai_stage(database, config=config) as stage:
        stage.model.script(Say("One two.", gate=gate))
        address = address_of(stage)
        async with websockets.connect(address) as socket:
            await socket.send(json.dumps({"type": "response.create", "model": "assistant", "input": "hi"}))
            await socket.recv()
            assert not await can_connect(address)
        async with asyncio.timeout(HANG_SECONDS):
            while not await can_connect(address):
                await asyncio.sleep(0.02)
        gate.set()


PROGRAM = Path(__file__).parent / "javascript"
NPM = shutil.which("npm")
SAID = {
    "chat": "Hello.",
    "chatStream": "Hello.",
    "chatUsage": True,
    "chatTools": ["Hello.", "Graz"],
    "chatFormat": "Graz",
    "previous": ["Hello.", "Hello."],
    "inputItems": 3,
    "tools": ["Graz", "Hello."],
    "format": "Graz",
    "conversation": ["user", "assistant"],
    "deleted": True,
    "background": ["Hello.", 3],
    "cancelled": "cancelled",
    "error": ["NotFoundError", 404, "model_not_found", "model"],
}


def answer(request: ModelRequest) -> Step:
    """Answer as the program expects it: with its tool if it has one, in its format, or never."""
    newest = request.prompt.messages[-1]
    if newest.content == "hang":
        return Hang()
    if request.response_format is not None:
        return Say('{"town": "Graz"}')
    if any(tool.name == "weather" for tool in request.tools) and newest.role is Role.USER:
        return Call((ToolCall("call_1", "weather", '{"town": "Graz"}'),), is_streamed=True)
    return Say("Hello.", usage=Usage(input_tokens=3, output_tokens=2))


@pytest.mark.proof
@pytest.mark.skipif(NPM is None, reason="npm is not installed: the client cannot be installed")
async def test_openais_javascript_client_can_be_used_for_everything(database: Database, tmp_path: Path) -> None:
    project = shutil.copytree(PROGRAM, tmp_path / "project", ignore=shutil.ignore_patterns("node_modules"))
    await run(project, NPM or "", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
    async with open_openai_stage(database) as stage:
        stage.model.by_request = answer
        address = f"{str(stage.http.base_url).rstrip('/')}/v1"
        printed = await run(project, "node", "use_the_client.mjs", address)

    assert json.loads(printed) == SAID
