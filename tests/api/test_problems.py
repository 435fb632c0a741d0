"""Every error of the tree has its status, and a defect shows nothing of our inside."""

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import httpx
import pytest

import throughline.http.route_errors
from fakes.api_stage import KEYED, LOCAL, open_session, set_stage
from throughline.api.front_end import API
from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import DatabaseUnavailable, ThroughlineError
from throughline.http.app import create_app
from throughline.http.problem_documents import error_problem
from throughline.http.route_errors import KINDS_BY_SUBJECT, PROBLEM_KINDS
from throughline.http.services import Readiness
from throughline.openai.front_end import OPENAI_API

SECRET = "canary-9f3b of a user"


def all_errors(root: type[ThroughlineError]) -> Iterator[type[ThroughlineError]]:
    for kind in root.__subclasses__():
        if kind.__module__ in {ThroughlineError.__module__, throughline.http.route_errors.__name__}:
            yield kind
            yield from all_errors(kind)


def test_every_error_of_the_tree_has_a_status() -> None:
    codes = {kind.code for kind in all_errors(ThroughlineError)}

    assert codes <= set(PROBLEM_KINDS)


def test_a_temporary_error_says_when_to_come_back() -> None:
    response = error_problem(DatabaseUnavailable("All connections are in use.", delay_seconds=3.2))

    assert response.status_code == 503
    assert response.headers["retry-after"] == "4"


async def test_a_database_that_is_away_is_told_with_a_time_to_come_back(database: Database) -> None:
    stage = set_stage(database, LOCAL)

    async def away(_owner_id: UserId, _session_id: SessionId) -> ContextReport:
        raise DatabaseUnavailable("The database does not answer.")

    app = create_app(replace(stage.services, report_context=away), LOCAL, (API, OPENAI_API))
    async with replace(stage, app=app).client() as client:
        session = (await client.post("/v1/sessions", json={"agent": "assistant"})).json()["id"]
        response = await client.get(f"/v1/sessions/{session}/context")

    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert response.json()["type"] == "/problems/database_unavailable"


async def test_a_defect_shows_and_logs_nothing_of_a_user(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = set_stage(database, KEYED)

    async def break_down() -> Readiness:
        raise RuntimeError(SECRET)

    app = create_app(replace(stage.services, check_ready=break_down), KEYED, (API, OPENAI_API))
    async with replace(stage, app=app).client() as client:
        response = await client.get("/health/ready")

    assert response.status_code == 500
    assert response.json()["type"] == "/problems/internal_error"
    shown = capsys.readouterr()
    assert SECRET not in response.text + shown.out + shown.err
    assert "RuntimeError" in shown.out + shown.err


INSIDE = ("Input should", "dictionary", "instance of", "SendMessage", "Recursion", "tag", ".dict", "pattern", "canary")
NESTED = '{"a":' * 60 + "1" + "}" * 60
BODIES = (
    "[1]",
    "null",
    "{}",
    '{"content": 7}',
    '{"content": null}',
    '{"content": ""}',
    '{"content": []}',
    '{"content": [7]}',
    '{"content": [{"text": "hi"}]}',
    '{"content": [{"type": "canary", "text": "hi"}]}',
    '{"content": [{"type": ["canary"]}]}',
    '{"content": [{"type": "image", "url": "file:///canary"}]}',
    '{"content": [{"type": "image", "url": "https://x", "detail": "canary"}]}',
    '{"content": "hi", "on_busy": "canary"}',
    '{"content": "hi", "metadata": []}',
    f'{{"content": "hi", "metadata": {NESTED}}}',
)


async def test_refusals_are_sentences_for_people(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    session = await open_session(client)

    for body in BODIES:
        with subtests.test(body[:60]):
            response = await client.post(f"{session}/messages", content=body)

            assert response.status_code == 422
            assert [word for word in INSIDE if word in response.text] == []
            assert all(error["detail"].endswith(".") for error in response.json()["errors"])


async def test_query_refusals_name_the_bounds(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for query, words in (("limit=0", "1 or more"), ("limit=201", "200 or less"), ("limit=x", "whole number")):
        with subtests.test(query):
            response = await client.get(f"/v1/sessions?{query}")

            assert words in response.json()["detail"]


@pytest.mark.parametrize(("levels", "refusals"), [(64, 0), (65, 2), (900, 2), (5_000, 2)])
async def test_the_depth_that_is_taken_is_always_the_same(
    client: httpx.AsyncClient, levels: int, refusals: int
) -> None:
    session = await open_session(client)
    body = "[" * levels + '"]]\\"[["' + "]" * levels

    async def from_deep(frames: int) -> httpx.Response:
        if frames:
            return await from_deep(frames - 1)
        return await client.post(f"{session}/messages", content=body)

    answers = [await from_deep(frames) for frames in (0, 300)]

    assert [answer.status_code for answer in answers] == [422, 422]
    assert sum("nested" in answer.json()["detail"] for answer in answers) == refusals


async def test_brackets_in_text_are_no_depth(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    response = await client.post(f"{session}/messages", json={"content": '[{"\\' * 1_000})

    assert response.status_code == 200


async def test_hostile_quotes_take_no_time(client: httpx.AsyncClient) -> None:
    session = await open_session(client)

    response = await client.post(f"{session}/messages", content="[" * 10 + "[]" * 60 + '"' + '\\"' * 400_000)

    assert response.status_code == 400


BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SENTENCE = re.compile(r"(?s)[A-Z`].*\.")


async def test_the_type_of_a_refusal_leads_to_cause_and_remedy(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        refused = (await client.get("/v1/sessions", headers={"Authorization": "Bearer none"})).json()
        answer = await client.get(refused["type"], headers={"Authorization": "Bearer none"})

    kind = PROBLEM_KINDS["not_authenticated"]
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "type": refused["type"],
        "title": refused["title"],
        "status": refused["status"],
        "cause": kind.cause,
        "remedy": kind.remedy,
        "page": f"docs/{kind.page}",
    }


async def test_a_browser_gets_a_page_of_every_problem(database: Database) -> None:
    async with set_stage(database, KEYED).client() as client:
        pages = {code: await client.get(f"/problems/{code}", headers=BROWSER) for code in PROBLEM_KINDS}

    for code, page in pages.items():
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert f"<code>/problems/{code}</code>, HTTP status {PROBLEM_KINDS[code].status}" in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none';")
        assert "`" not in page.text
    assert "larger than <code>MAX_BODY_BYTES</code>" in pages["body_too_large"].text
    assert "docs/" not in pages["internal_error"].text


@pytest.mark.parametrize(
    "path", ["/problems/not_found", "/", "/docs", "/docs/start.js", "/health/live", "/health/ready", "/metrics"]
)
async def test_pages_answer_head_as_they_answer_get_without_a_body(database: Database, path: str) -> None:
    async with set_stage(database, KEYED).served() as client:
        asked, head = await client.get(path, headers=BROWSER), await client.head(path, headers=BROWSER)

    assert (head.status_code, head.content) == (200, b"")
    for name in ("content-type", "content-length", "content-security-policy"):
        assert head.headers.get(name) == asked.headers.get(name)


@pytest.mark.parametrize("name", ["nothing_like_it", "<script>", "\0", "x" * 5_000, "NOT_FOUND", "\u2028"])
@pytest.mark.parametrize("headers", [{}, BROWSER])
async def test_a_problem_that_does_not_exist_is_not_found(
    database: Database, name: str, headers: dict[str, str]
) -> None:
    async with set_stage(database, KEYED).client() as client:
        answer = await client.get(f"/problems/{quote(name)}", headers=headers)

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["type"] == "/problems/not_found"
    assert answer.json()["detail"].startswith("There is no error with the code")
    assert len(answer.content) < 1_000


def test_every_kind_of_problem_says_cause_and_remedy_in_sentences() -> None:
    told = [text for kind in PROBLEM_KINDS.values() for text in (kind.cause, kind.remedy)]

    assert [text for text in told if not SENTENCE.fullmatch(text) or text.count("`") % 2] == []


def test_no_code_belongs_to_two_subjects() -> None:
    assert sum(map(len, KINDS_BY_SUBJECT.values())) == len(PROBLEM_KINDS)
