"""Health and metrics: for machinery, without a key, telling nothing of users."""

import threading
from dataclasses import replace

import httpx

from fakes.api_stage import KEYED, ApiStage, set_stage
from throughline.api.front_end import API
from throughline.db.database import Database
from throughline.domain.errors import DatabaseUnavailable
from throughline.http.app import create_app
from throughline.http.services import Readiness
from throughline.openai.front_end import OPENAI_API


async def get(stage: ApiStage, path: str) -> httpx.Response:
    async with stage.client() as client:
        return await client.get(path)


async def test_a_process_that_answers_is_alive_and_ready(database: Database) -> None:
    stage = set_stage(database, KEYED)

    live, ready = await get(stage, "/health/live"), await get(stage, "/health/ready")

    assert live.json()["status"] == "ok"
    assert ready.json() == {"status": "ok", "version": "0.0.0", "checks": {"database": True}, "reasons": {}}


async def test_without_a_database_it_is_alive_but_not_ready(database: Database) -> None:
    stage = set_stage(database, KEYED)

    async def fail() -> Readiness:
        raise DatabaseUnavailable("The database does not answer.")

    stage = replace(stage, app=create_app(replace(stage.services, check_ready=fail), KEYED, (API, OPENAI_API)))

    live, ready = await get(stage, "/health/live"), await get(stage, "/health/ready")

    assert live.status_code == 200
    assert ready.status_code == 503
    assert ready.json()["checks"] == {"database": False}


async def test_a_stopping_process_is_not_ready(database: Database) -> None:
    stage = set_stage(database, KEYED)
    stage.services.shutting_down.set()

    assert (await get(stage, "/health/ready")).status_code == 503


async def test_metrics_are_prometheus_text(database: Database) -> None:
    response = await get(set_stage(database, KEYED), "/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_what_is_only_slower_stays_ready_and_says_so(database: Database) -> None:
    stage = set_stage(database, KEYED)

    async def deaf() -> Readiness:
        return Readiness({"database": True}, {"listener": False, "workers": True}, {"listener": "since noon"})

    stage = replace(stage, app=create_app(replace(stage.services, check_ready=deaf), KEYED, (API, OPENAI_API)))

    ready = await get(stage, "/health/ready")

    assert ready.status_code == 200
    assert ready.json()["status"] == "degraded"
    assert ready.json()["checks"] == {"database": True, "listener": False, "workers": True}
    assert ready.json()["reasons"] == {"listener": "since noon"}


async def test_metrics_are_written_beside_the_event_loop(database: Database) -> None:
    stage, written_in = set_stage(database, KEYED), set[threading.Thread]()

    def render() -> tuple[bytes, str]:
        written_in.add(threading.current_thread())
        return b"", "text/plain"

    stage = replace(stage, app=create_app(replace(stage.services, render_metrics=render), KEYED, (API, OPENAI_API)))
    await get(stage, "/metrics")

    assert len(written_in - {threading.current_thread()}) == 1
