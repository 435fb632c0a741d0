"""Every error of the tree has its status, and a defect shows nothing of our inside."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

import throughline.http.route_errors
from fakes.api_stage import KEYED, LOCAL, set_stage
from throughline.api.front_end import API
from throughline.context.explain_context import ContextReport
from throughline.db.database import Database
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.errors import DatabaseUnavailable, ThroughlineError
from throughline.http.app import create_app
from throughline.http.problem_documents import error_problem
from throughline.http.problem_kinds.all_kinds import PROBLEM_KINDS
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
