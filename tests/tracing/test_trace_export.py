"""Sending traces: where to, with which headers, and what happens where nobody takes them."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fakes.scripted_model import Say
from fakes.service_process import RunScript, free_port
from fakes.stage import open_stage
from fakes.trace_collector import trace_collector
from throughline.assembly.runtime import open_tracing, read_headers, traces_url
from throughline.db.database import Database
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import ProcessId, SessionId
from throughline.domain.errors import SettingInvalid
from throughline.domain.run import RunStatus
from throughline.domain.service_status import Process, ProcessKind
from throughline.ports.tracing import NO_TRACING, SummaryTrace
from throughline.settings import Settings
from throughline.tracing.open_tracing import CLOSE_SECONDS, EXPORT_SECONDS, Exporting, TracingConfig

PROCESS = Process(ProcessId(new_id()), ProcessKind.SERVE, "host:1:abc", "0.1.0")
SUMMARY = SummaryTrace("prepare summary", SessionId(new_id()), "assistant")
IMPORTS = """
import sys
import throughline.assembly.programs
import throughline.turn.graph
ours = ("opentelemetry.exporter", "throughline.tracing")  # LangSmith's package imports the SDK where it is installed
print([name for name in sys.modules if name.startswith(ours)])
"""


@contextmanager
def exporting(url: str) -> Iterator[Exporting]:
    opened = Exporting(TracingConfig(traces_url(url)))
    try:
        yield opened
    finally:
        opened.close()


def test_the_last_spans_are_sent_at_the_end() -> None:
    with trace_collector() as collector, exporting(collector.url) as opened:
        opened.tracing.begin_summary(SUMMARY).end(None)

    assert collector.paths == ["/v1/traces"]
    assert collector.span_names == ["prepare summary"]


async def test_settings_alone_say_where_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLECTOR_HEADERS", "authorization=Basic%20abc=, x-team = blue")
    with trace_collector() as collector:
        settings = Settings(
            _env_file=None, tracing="otlp", tracing_endpoint=collector.url, tracing_headers_env="COLLECTOR_HEADERS"
        )
        async with open_tracing(settings, PROCESS) as tracing:
            tracing.begin_summary(SUMMARY).end(None)

    headers = {name.lower(): value for name, value in collector.headers[0].items()}
    assert (headers["authorization"], headers["x-team"]) == ("Basic abc=", "blue")
    assert collector.resources == [
        {"service.name": "throughline", "service.version": "0.1.0", "service.instance.id": "host:1:abc"}
    ]


async def test_off_is_the_default_and_loads_no_exporter(run_alone: RunScript, tmp_path: Path) -> None:
    script = tmp_path / "imports.py"
    script.write_text(IMPORTS)
    async with open_tracing(Settings(_env_file=None), PROCESS) as tracing:
        assert tracing is NO_TRACING

    code, output, errors = await run_alone(tmp_path, {}, script)

    assert (code, output.strip()) == (0, "[]"), errors


async def test_missing_packages_are_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "throughline.tracing.open_tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)

    with pytest.raises(SettingInvalid, match=r"pip install 'throughline\[otel\]'"):
        async with open_tracing(Settings(_env_file=None, tracing="otlp"), PROCESS):
            pass


@pytest.mark.parametrize(
    ("written", "wrong"),
    [("", "not set"), ("Bearer abc", "name=value"), ("x-team=abc%0A", "name=value"), ("a=b,=c", "name=value")],
)
def test_headers_that_cannot_be_read_are_refused_without_their_value(
    monkeypatch: pytest.MonkeyPatch, written: str, wrong: str
) -> None:
    monkeypatch.setenv("COLLECTOR_HEADERS", written)

    with pytest.raises(SettingInvalid, match=wrong) as refused:
        read_headers("COLLECTOR_HEADERS")

    assert "abc" not in refused.value.detail


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("https://example.com/otel/v1/traces", "https://example.com/otel/v1/traces"),
    ],
)
def test_an_address_without_a_path_gets_the_usual_one(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


@pytest.mark.slow
async def test_a_collector_that_is_away_fails_no_turn_and_is_logged_once(database: Database) -> None:
    stage = await open_stage(database)
    stage.model.by_request = lambda _request: Say("here")
    with capture_logs() as logs, exporting(f"http://127.0.0.1:{free_port()}") as opened:
        stage.dependencies = replace(stage.dependencies, tracing=opened.tracing)
        runs = [await stage.turn("hi") for _ in range(30)]

    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    failures = [line for line in logs if line["event"] == "trace export failed"]
    assert len(failures) == 1
    assert failures[0]["lost_spans"] > 0


@pytest.mark.slow
def test_a_collector_that_hangs_does_not_hold_up_the_end() -> None:
    with trace_collector(hangs=True) as collector:
        opened = Exporting(TracingConfig(traces_url(collector.url)))
        opened.tracing.begin_summary(SUMMARY).end(None)
        began = time.monotonic()
        opened.close()
        took = time.monotonic() - began

    assert CLOSE_SECONDS <= took < EXPORT_SECONDS
