"""Turns that wait are counted for all users, by what they wait for, with the age of the oldest."""

from fakes.conversations import open_conversation
from fakes.raw_sql import run_sql
from fakes.scripted_model import Call
from fakes.stage import open_stage
from fakes.waiting_turns import ASKS_WEATHER, send
from throughline.db.database import Database
from throughline.telemetry import PrometheusMetrics
from throughline.turn.worker.jobs import WaitingTurnsReport


async def test_queued_turns_and_turns_that_wait_for_a_client_are_told_apart(
    database: Database, database_url: str
) -> None:
    metrics = PrometheusMetrics()
    report = WaitingTurnsReport(database.runs, metrics)
    await report.record()
    assert metrics.registry.get_sample_value("throughline_turns_waiting", {"status": "queued"}) == 0

    stage = await open_stage(database)
    stage.model.script(Call((ASKS_WEATHER,)))
    await send(stage)
    for name in ("anna", "bert"):
        await (await open_conversation(database, name)).submit()
    await run_sql(database_url, "update runs set created_at = now() - interval '90 seconds' where status = 'queued'")
    await report.record()

    values = {
        (series, status): metrics.registry.get_sample_value(f"throughline_turns_{series}", {"status": status})
        for series in ("waiting", "oldest_seconds")
        for status in ("queued", "waiting")
    }
    assert values["waiting", "queued"] == 2
    assert values["waiting", "waiting"] == 1
    assert (values["oldest_seconds", "queued"] or 0) >= 90
    assert 0 <= (values["oldest_seconds", "waiting"] or 0) < 90
