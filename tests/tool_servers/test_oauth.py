"""Tokens for servers at an address, by OAuth client credentials: asked for, kept, renewed, and refused in words."""

import base64
import itertools
import json
from collections.abc import AsyncGenerator

import pytest

from fakes.raw_http_server import Answer, RawServer, serve_raw
from fakes.service_process import free_port
from fakes.tool_servers import outcome_of, served_call
from fakes.waiting import HANG_SECONDS
from throughline.domain.tool_server import ClientCredentials, ServedTools, ToolServer
from throughline.tools.mcp_client import oauth
from throughline.tools.mcp_client.bounds import Bounds
from throughline.tools.mcp_client.connections import McpConnections
from tool_servers.test_addresses import DISCOVERED, LISTED, answer

pytest.importorskip("mcp.client.client", reason="the extra `mcp` is not installed")

BOUNDS = Bounds(wait_seconds=HANG_SECONDS, first_pause_seconds=0.01, close_seconds=0.2)
VARIABLES = {"THE_ID": "some client", "THE_SECRET": "s3cret+/"}
RESULT = {"content": [{"type": "text", "text": "called"}], "resultType": "complete"}
REFUSED = Answer(["no"], status=401, content_type="text/plain")


@pytest.fixture
async def servers() -> AsyncGenerator[McpConnections]:
    async with McpConnections(lambda name: VARIABLES.get(name, ""), 10_000, bounds=BOUNDS) as made:
        yield made


def at(url: str, token_url: str) -> ToolServer:
    oauth = ClientCredentials(token_url, "THE_ID", "THE_SECRET", ("read", "write"), "https://api")
    return ToolServer("web", url=url, oauth=oauth, timeout_seconds=HANG_SECONDS)


def token(text: str, **more: object) -> Answer:
    return Answer([json.dumps({"access_token": text, "token_type": "Bearer", **more})])


def header(head: str) -> str:
    return next(line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("authorization:"))


def sent(raw: RawServer) -> list[str]:
    """Return the tokens of the requests."""
    return [header(head).removeprefix("Bearer ") for head in raw.heads]


async def call(servers: McpConnections, server: ToolServer) -> str:
    return (await outcome_of(servers, await served_call(servers, server, "add"))).text


async def test_a_token_is_asked_for_once_and_sent_with_each_request(servers: McpConnections) -> None:
    async with (
        serve_raw(token("one", expires_in=3600)) as tokens,
        serve_raw(answer(1, DISCOVERED), answer(2, LISTED), answer(3, RESULT)) as raw,
    ):
        assert await call(servers, at(raw.url, f"{tokens.url}/token")) == "called"

    assert sent(raw) == ["one"] * 3
    assert tokens.paths == ["/token"]
    assert tokens.requests == [{"grant_type": "client_credentials", "scope": "read write", "resource": "https://api"}]
    assert base64.b64decode(header(tokens.heads[0]).removeprefix("Basic ")) == b"some+client:s3cret%2B%2F"


async def test_a_token_that_has_expired_is_renewed(servers: McpConnections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "_now", itertools.count(step=100.0).__next__)
    async with (
        serve_raw(token("one", expires_in=60), token("two"), token("unused")) as tokens,
        serve_raw(answer(1, DISCOVERED), answer(2, LISTED), answer(3, RESULT)) as raw,
    ):
        assert await call(servers, at(raw.url, tokens.url)) == "called"
        tokens.answers.clear()

    assert sent(raw) == ["two"] * 3


@pytest.mark.parametrize("lasts", [0, -5, True, "60"])
async def test_a_token_of_a_senseless_time_is_kept(servers: McpConnections, lasts: object) -> None:
    async with (
        serve_raw(token("one", expires_in=lasts)) as tokens,
        serve_raw(answer(1, DISCOVERED), answer(2, LISTED), answer(3, RESULT)) as raw,
    ):
        assert await call(servers, at(raw.url, tokens.url)) == "called"

    assert sent(raw) == ["one"] * 3


async def test_a_token_that_is_refused_is_renewed_once(servers: McpConnections) -> None:
    async with (
        serve_raw(token("one"), token("two")) as tokens,
        serve_raw(answer(1, DISCOVERED), answer(2, LISTED), REFUSED, answer(3, RESULT)) as raw,
    ):
        assert await call(servers, at(raw.url, tokens.url)) == "called"

    assert sent(raw) == ["one", "one", "one", "two"]


async def test_a_new_token_that_is_refused_too_is_told(servers: McpConnections) -> None:
    async with (
        serve_raw(token("one"), token("two")) as tokens,
        serve_raw(answer(1, DISCOVERED), answer(2, LISTED), REFUSED, REFUSED) as raw,
    ):
        assert "the server answered with the status 401" in await call(servers, at(raw.url, tokens.url))


async def test_a_token_that_cannot_be_renewed_fails_the_call_alone(servers: McpConnections) -> None:
    async with (
        serve_raw(token("one"), Answer(['{"error": "invalid_client"}'], status=401), token("three")) as tokens,
        serve_raw(answer(1, DISCOVERED), answer(2, LISTED), REFUSED, answer(4, RESULT)) as raw,
    ):
        server = at(raw.url, tokens.url)
        assert "token_url refused a token (401, invalid_client)" in await call(servers, server)
        assert await call(servers, server) == "called"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (Answer(['{"error": "invalid_scope", "error_description": "s3cret"}'], status=400), "(400, invalid_scope)"),
        (Answer(['{"error": "s3cret!"}'], status=400), "token_url refused a token (400)"),
        (Answer(["<html>"], status=503), "token_url refused a token (503)"),
        (Answer([""], status=302, headers=(("location", "http://192.0.2.1/"),)), "token_url redirects (302)"),
        (Answer(["x" * 1_000] * 1_000), "the answer of token_url has more than 100,000 bytes"),
        (Answer(["[]"]), "the answer of token_url has no access_token that can be sent"),
        (token("two words"), "the answer of token_url has no access_token that can be sent"),
        (token("one", token_type="mac"), "a token of another type than Bearer"),
        (Answer(["{"], is_cut=True), "token_url cannot be reached (RemoteProtocolError)"),
        (Answer(["x"], headers=(("content-encoding", "gzip"),)), "token_url compressed its answer"),
    ],
)
async def test_an_answer_without_a_token_is_told_without_secrets(
    servers: McpConnections, given: Answer, told: str
) -> None:
    async with serve_raw(given) as tokens:
        served = await servers.tools_of([at("http://127.0.0.1:1", tokens.url)])

    assert told in problem(served)
    assert "s3cret" not in problem(served)


def problem(served: ServedTools) -> str:
    return served.problems["web"]


async def test_a_token_url_that_is_away_is_told(servers: McpConnections) -> None:
    served = await servers.tools_of([at("http://127.0.0.1:1", f"http://127.0.0.1:{free_port()}")])

    assert problem(served) == "token_url cannot be reached (ConnectError)"


async def test_a_variable_that_is_not_set_is_named() -> None:
    async with McpConnections(lambda name: "x" if name == "THE_ID" else "", 10_000, bounds=BOUNDS) as servers:
        served = await servers.tools_of([at("http://127.0.0.1:1", "http://127.0.0.1:1")])

    assert problem(served) == "the environment variable THE_SECRET is not set, from which client_secret is taken"


async def test_a_server_that_repeats_the_token_does_not_show_it(servers: McpConnections) -> None:
    refusal = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "wrong token: t0ken"}}
    refused = Answer([json.dumps(refusal)], status=400)
    async with serve_raw(token("t0ken")) as tokens, serve_raw(refused, refused) as raw:
        served = await servers.tools_of([at(raw.url, tokens.url)])

    assert problem(served) == "connecting or listing its tools failed: wrong token: …"
