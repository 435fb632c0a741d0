"""The `type` of a problem document is an address of the service: it says what the error means and what to do."""

import re
from urllib.parse import quote

import pytest

from fakes.api_stage import KEYED, set_stage
from throughline.db.database import Database
from throughline.http.problem_kinds.all_kinds import KINDS_BY_SUBJECT, PROBLEM_KINDS

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
