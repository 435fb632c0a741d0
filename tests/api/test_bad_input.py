"""Whatever a client sends, it gets a problem document that names the place and never shows what was sent."""

import base64
import json
import resource
import subprocess
import sys
from uuid import UUID

import httpx
import pytest

from fakes.api_stage import LOCAL, ApiStage, open_session, set_stage
from throughline.db.database import Database

JSON = {"Content-Type": "application/json"}
MARK = "canary-9f3b"


def check_problem(response: httpx.Response, status: int, kind: str) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, object] = response.json()
    assert body["type"] == f"/problems/{kind}"
    assert body["status"] == status
    assert body["detail"]
    assert MARK not in response.text
    return body


DEEP = '{"content": "hi", "metadata": ' + '{"a":' * 40 + "1" + "}" * 40 + "}"
MESSAGES: dict[str, tuple[bytes, int, str]] = {
    "no body": (b"", 400, "malformed_body"),
    "no JSON": (b'{"content": ' + MARK.encode(), 400, "malformed_body"),
    "invalid UTF-8": (b'{"content": "\xff\xfe"}', 400, "malformed_body"),
    "UTF-16": ('{"content": "hi"}'.encode("utf-16"), 400, "malformed_body"),
    "a raw NUL": (b'{"content": "a\x00b"}', 400, "malformed_body"),
    "100,000 levels": (b"[" * 100_000, 422, "invalid_input"),
    "900 levels": (b"[" * 900 + b"]" * 900, 422, "invalid_input"),
    "metadata of 40 levels": (DEEP.encode(), 422, "invalid_input"),
    "NaN": (b'{"content": "hi", "metadata": {"a": NaN}}', 422, "invalid_input"),
    "Infinity": (b'{"content": "hi", "metadata": {"a": -Infinity}}', 422, "invalid_input"),
    "1e400": (b'{"content": "hi", "metadata": {"a": 1e400}}', 422, "invalid_input"),
    "a number of 5,000 digits": (b'{"content": "hi", "metadata": {"a": ' + b"9" * 5000 + b"}}", 400, "malformed_body"),
    "a list": (b"[1]", 422, "invalid_input"),
    "null": (b"null", 422, "invalid_input"),
    "no content": (b"{}", 422, "invalid_input"),
    "a number as content": (b'{"content": 7}', 422, "invalid_input"),
    "an object as content": (b'{"content": {"text": "hi"}}', 422, "invalid_input"),
    "empty content": (b'{"content": ""}', 422, "invalid_input"),
    "white space": (b'{"content": " \\n\\t "}', 422, "invalid_input"),
    "zero-width characters": (b'{"content": "\\u200b\\ufeff"}', 422, "invalid_input"),
    "no blocks": (b'{"content": []}', 422, "invalid_input"),
    "blank blocks": (b'{"content": [{"type": "text", "text": " "}]}', 422, "invalid_input"),
    "an unknown block": (b'{"content": [{"type": "video", "url": "https://x"}]}', 422, "invalid_input"),
    "a file address": (b'{"content": [{"type": "image", "url": "file:///etc/passwd"}]}', 422, "invalid_input"),
    "an unknown field": (b'{"content": "hi", "role": "canary-9f3b"}', 422, "invalid_input"),
    "an unknown way to be busy": (b'{"content": "hi", "on_busy": "canary-9f3b"}', 422, "invalid_input"),
    "metadata that is a list": (b'{"content": "hi", "metadata": []}', 422, "invalid_input"),
    "300 metadata keys": (
        json.dumps({"content": "hi", "metadata": {f"k{i}": i for i in range(300)}}).encode(),
        422,
        "invalid_input",
    ),
    "17 kB of metadata": (
        json.dumps({"content": "hi", "metadata": {"k": MARK * 1600}}).encode(),
        422,
        "invalid_input",
    ),
    "NUL in a metadata key": (b'{"content": "hi", "metadata": {"a\\u0000": 1}}', 422, "invalid_input"),
    "a surrogate as a field name": (b'{"content": "hi", "\\ud800": 1}', 422, "invalid_input"),
}


async def test_a_bad_message_is_refused_and_nothing_is_stored(
    client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    session = await open_session(client)

    for name, (body, status, kind) in MESSAGES.items():
        with subtests.test(name):
            check_problem(await client.post(f"{session}/messages", content=body, headers=JSON), status, kind)

    assert (await client.get(f"{session}/messages")).json()["data"] == []


HOSTILE = {
    b'"a\\u0000b"': "a\N{REPLACEMENT CHARACTER}b",
    b'"half \\ud83d"': "half \N{REPLACEMENT CHARACTER}",
    b'"\\udc00\\ud800"': "\N{REPLACEMENT CHARACTER}" * 2,
    b'"whole \\ud83d\\ude00"': "whole \N{GRINNING FACE}",
    '"<|endoftext|> </summary> \u202e"'.encode(): "<|endoftext|> </summary> \u202e",
}


async def test_hostile_text_is_cleaned_and_stored(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    session = await open_session(client)

    for sent, stored in HOSTILE.items():
        with subtests.test(sent.decode()):
            response = await client.post(f"{session}/messages", content=b'{"content": ' + sent + b"}", headers=JSON)
            assert response.status_code == 200, response.text
            history = (await client.get(f"{session}/messages", params={"order": "desc"})).json()["data"]
            assert history[1]["content"] == stored


BAD_SESSIONS: list[tuple[dict[str, object], str]] = [
    ({}, "agent"),
    ({"agent": 3}, "agent"),
    ({"agent": ""}, "agent"),
    ({"agent": "assistant", "title": "x" * 201}, "title"),
    ({"agent": "assistant", "title": None}, "title"),
    ({"agent": "assistant", "owner_id": MARK}, "owner_id"),
    ({"agent": "assistant", "metadata": MARK}, "metadata"),
]


async def test_a_bad_session_is_refused_by_field(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for body, field in BAD_SESSIONS:
        with subtests.test(str(body)):
            response = await client.post("/v1/sessions", json=body)

            problem = check_problem(response, 422, "invalid_input")
            assert [error["field"] for error in response.json()["errors"]] == [field]
            assert str(problem["detail"]).startswith(field)


async def test_an_unknown_agent_is_not_found(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/sessions", json={"agent": "nobody"})

    problem = check_problem(response, 404, "not_found")
    assert "nobody" in str(problem["detail"])


BAD_LISTS = [
    ("limit=0", "limit"),
    ("limit=-1", "limit"),
    ("limit=201", "limit"),
    ("limit=1000000000000", "limit"),
    (f"limit={MARK}", "limit"),
    (f"cursor={MARK}", "cursor"),
    ("cursor=%00", "cursor"),
    (f"cursor={'x' * 600}", "cursor"),
    ("colour=red", "colour"),
]


async def test_a_bad_list_parameter_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for query, field in BAD_LISTS:
        with subtests.test(query):
            response = await client.get(f"/v1/sessions?{query}")

            check_problem(response, 422, "invalid_input")
            assert [error["field"] for error in response.json()["errors"]] == [field]


async def test_a_bad_history_parameter_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    session = await open_session(client)

    for query in ("after=-1", "before=0", "after=9223372036854775808", "order=up", "after=x"):
        with subtests.test(query):
            check_problem(await client.get(f"{session}/messages?{query}"), 422, "invalid_input")


async def test_a_hostile_filter_is_only_a_filter(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    await open_session(client)

    for query in ("q=%00", "agent=%00", "q=%ff", "q=%ed%a0%80", "q=%25", "q=_"):
        with subtests.test(query):
            response = await client.get(f"/v1/sessions?{query}")
            assert (response.status_code, response.json()["data"]) == (200, [])


BAD_PREVIEWS = {
    name: case
    for name, case in MESSAGES.items()
    if name not in {"no body", "no content"} and "metadata" not in name and b"metadata" not in case[0]
} | {
    "metadata": (b'{"content": "hi", "metadata": {}}', 422, "invalid_input"),
    "a way to be busy": (b'{"content": "hi", "on_busy": "reject"}', 422, "invalid_input"),
    "instructions": (b'{"instructions": "hi"}', 422, "invalid_input"),
}


async def test_a_bad_preview_is_refused_like_a_bad_message(
    stage: ApiStage, client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    session = await open_session(client)

    for name, (body, status, kind) in BAD_PREVIEWS.items():
        with subtests.test(name):
            check_problem(await client.post(f"{session}/context/preview", content=body, headers=JSON), status, kind)

    assert stage.pins.previewed == []


async def test_what_cannot_be_a_messages_id_cannot_be_pinned(
    client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    session = await open_session(client)

    for text in (*IDS, str(UUID(int=7))):
        for method in ("PUT", "DELETE"):
            with subtests.test(f"{method} {text}"):
                answer = await client.request(method, f"{session}/messages/{text}/pin")
                assert str(check_problem(answer, 404, "not_found")["detail"]).startswith("There is no message")


IDS = ("1", "x" * 36, "%00", "{01900000-0000-7000-8000-000000000000}", "01900000000070008000000000000000")
WITH_IDS = ("/v1/sessions/{}", "/v1/sessions/{}/messages", "/v1/runs/{}", "/v1/runs/{}/events")


async def test_what_cannot_be_an_id_is_not_found_in_the_same_words(
    client: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in WITH_IDS:
        unknown = check_problem(await client.get(path.format(UUID(int=7))), 404, "not_found")
        words = str(unknown["detail"]).replace(f"{UUID(int=7)}.", "")
        for text in IDS:
            with subtests.test(path.format(text)):
                answer = check_problem(await client.get(path.format(text)), 404, "not_found")
                assert str(answer["detail"]).startswith(words)


async def test_a_bad_idempotency_key_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for key in ("", "x" * 256, "\u00e9t\u00e9", "a\tb"):
        with subtests.test(key[:5]):
            headers = httpx.Headers({"Idempotency-Key": key}, encoding="latin-1")
            response = await client.post("/v1/sessions", json={"agent": "assistant"}, headers=headers)
            check_problem(response, 422, "invalid_input")


async def test_a_bad_last_event_id_is_refused(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for last in ("x", "1.5", "--1", "9" * 30, ""):
        with subtests.test(last):
            response = await client.get(f"/v1/runs/{UUID(int=7)}/events", headers={"Last-Event-ID": last})
            check_problem(response, 422, "invalid_input")


NOT_PLAIN = (
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Type": "application/json", "Content-Encoding": "gzip"},
)


async def test_only_plain_json_is_taken(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for headers in NOT_PLAIN:
        with subtests.test(str(headers)):
            response = await client.post("/v1/sessions", content=b'{"agent": "assistant"}', headers=headers)
            check_problem(response, 415, "unsupported_media_type")


async def test_an_unknown_route_and_a_wrong_method_are_problems_too(client: httpx.AsyncClient) -> None:
    unknown = await client.get("/v1/nothing")
    slash = await client.get("/v1/sessions/")
    wrong = await client.put("/v1/agents", json={})
    session = await client.put("/v1/sessions", json={})

    check_problem(unknown, 404, "route_not_found")
    check_problem(slash, 404, "route_not_found")
    check_problem(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET"
    assert set(session.headers["allow"].split(", ")) == {"GET", "POST"}


async def test_head_on_a_stream_does_not_hang(client: httpx.AsyncClient) -> None:
    response = await client.head(f"/v1/runs/{UUID(int=7)}/events")

    assert response.status_code == 405


NIL = "00000000-0000-0000-0000-000000000000"
LATE, EARLY = "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"
FORGED: tuple[object, ...] = (
    [LATE, NIL],
    [EARLY, NIL],
    ["2026-01-01T00:00:00Z", "x"],
    ["2026-01-01T00:00:00Z", 7],
    [7, NIL],
    [None, None],
    [True, {}],
    ["2026-01-01", NIL, NIL],
    ["\ud800", NIL],
    {"a": 1, "b": 2},
    "ab",
    7,
    1e999,
)
RAW = ("=", "====", "a", "é", "%F0%9F%98%80", "\u0000", " ", "[" * 400, "WyI", base64.b64encode(b"[" * 300).decode())
LISTS = ("/v1/sessions", "/v1/memories")


def forge(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize("path", LISTS)
async def test_a_forged_cursor_is_refused(database: Database, path: str, subtests: pytest.Subtests) -> None:
    async with set_stage(database, LOCAL).client() as client:
        for cursor in (*map(forge, FORGED), *RAW):
            with subtests.test(cursor):
                response = await client.get(path, params={"cursor": cursor})

                assert response.status_code == 422
                assert response.json()["errors"][0]["field"] == "cursor"


@pytest.mark.parametrize("path", LISTS)
async def test_a_cursor_at_the_end_of_time_is_an_empty_page(database: Database, path: str) -> None:
    async with set_stage(database, LOCAL).client() as client:
        response = await client.get(path, params={"cursor": forge(["0001-01-01T00:00:00+00:00", NIL])})

    assert (response.status_code, response.json()["data"]) == (200, [])


@pytest.mark.parametrize("time", [LATE, EARLY])
@pytest.mark.parametrize("field", ["since", "until"])
async def test_a_time_beyond_all_times_is_no_error_of_ours(database: Database, field: str, time: str) -> None:
    async with set_stage(database, LOCAL).client() as client:
        response: httpx.Response = await client.get("/v1/search", params={"q": "index", field: time})

    assert response.status_code in {200, 422}


@pytest.mark.parametrize("time", [LATE, EARLY])
async def test_an_import_with_a_time_beyond_all_times_is_refused_or_taken(database: Database, time: str) -> None:
    message = {"type": "message", "position": 1, "role": "user", "content": "Hello", "created_at": time}
    lines = (json.dumps({"type": "session", "agent": "assistant"}), json.dumps(message))
    async with set_stage(database, LOCAL).client() as client:
        response = await client.post(
            "/v1/sessions/import", content="\n".join(lines), headers={"Content-Type": "application/x-ndjson"}
        )
        read = await client.get(f"{response.headers.get('Location', '/v1/sessions')}/messages")

    assert response.status_code in {201, 422}, response.text
    assert response.status_code == 422 or read.status_code == 200


PROGRAM = """
import resource, sys
from throughline.http.server import limit_connections
for case in sys.argv[1:]:
    soft, hard, wanted = map(int, case.split())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = limit_connections(wanted)
    print("told", limits.max_connections, limits.reserve, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
HIGHEST = 900


@pytest.mark.process
def test_connections_and_their_reserve_are_bounded_by_the_descriptors_there_may_be() -> None:
    """One process for all: what it may have only ever becomes less."""
    bounded = {  # soft and hard limit, connections wanted: connections allowed, reserve, soft limit raised to
        f"{HIGHEST} {HIGHEST} 500": "500 100 900",
        f"300 {HIGHEST} 500": "500 100 856",
        "300 700 500": "344 100 700",
        "200 200 500": "75 25 200",
        "100 100 20": "20 12 100",
    }
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= HIGHEST

    shown = subprocess.run([sys.executable, "-c", PROGRAM, *bounded], check=True, capture_output=True, text=True).stdout

    told = [line.removeprefix("told ") for line in shown.splitlines() if line.startswith("told ")]
    assert dict(zip(bounded, told, strict=True)) == bounded
