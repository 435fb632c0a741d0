"""Cursors and times that nobody was given: refused by name, never an error of ours."""

import base64
import json

import httpx
import pytest

from fakes.api_stage import LOCAL, set_stage
from throughline.db.database import Database

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
