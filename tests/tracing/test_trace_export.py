"""Sending traces: where to, with which headers, and what happens where nobody takes them."""

import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import throughline.db
from fakes.model_calls import simple_request
from fakes.scripted_model import Say
from fakes.service_process import RunScript, free_port
from fakes.stage import open_stage
from fakes.trace_collector import trace_collector
from throughline.assembly.runtime import open_tracing, read_headers, traces_url
from throughline.db.connection.pool import BEGIN_LIMITED, Statement
from throughline.db.database import Database
from throughline.db.statements.sql import new_id
from throughline.domain.basic_types import ProcessId, SessionId
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import ImageBlock, Role, TextBlock
from throughline.domain.prompt import ModelParameters, ModelRequest, Prompt, PromptMessage
from throughline.domain.run import RunStatus
from throughline.domain.service_status import Process, ProcessKind
from throughline.domain.usage_report import CallPurpose
from throughline.ports.tracing import NO_TRACING, EmbeddingPart, ModelCallPart, SummaryTrace
from throughline.settings import Settings
from throughline.tracing.attributes import (
    MOST_CHARACTERS,
    TraceContext,
    cut,
    describe,
    input_messages,
    summarize_statement,
    system_instructions,
)
from throughline.tracing.otel_tracing import CLOSE_SECONDS, EXPORT_SECONDS, Exporting, TracingConfig

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
    monkeypatch.delitem(sys.modules, "throughline.tracing.otel_tracing")
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


TRACE = TraceContext("a session", with_texts=False)


def call(model: str, address: str = "", request: ModelRequest | None = None) -> ModelCallPart:
    return ModelCallPart(model, address, CallPurpose.ANSWER, request or simple_request())


@pytest.mark.parametrize(
    ("model", "name", "provider"),
    [
        ("anthropic:claude-sonnet", "chat claude-sonnet", "anthropic"),
        ("google_genai:gemini-pro", "chat gemini-pro", "gcp.gemini"),
        ("mistralai:small", "chat small", "mistral_ai"),
        ("openai:qwen2.5:7b", "chat qwen2.5:7b", "openai"),
        ("offline", "chat offline", "offline"),
    ],
)
def test_a_model_call_is_named_by_its_model_and_has_its_provider(model: str, name: str, provider: str) -> None:
    described = describe(call(model), TRACE)

    assert (described.name, described.attributes["gen_ai.provider.name"]) == (name, provider)


def test_a_model_call_says_its_server_and_its_parameters() -> None:
    parameters = ModelParameters(temperature=0.5, seed=1, headers={"x-key": "hidden"})
    request = ModelRequest(Prompt("", ()), (), 10, parameters=parameters)

    described = describe(call("openai:small", "http://10.0.0.1:8080/v1", request), TRACE)

    assert described.attributes["server.address"] == "10.0.0.1"
    assert described.attributes["server.port"] == 8080
    assert described.attributes["gen_ai.request.temperature"] == 0.5
    assert "gen_ai.request.top_p" not in described.attributes
    assert "hidden" not in str(described)


def test_a_request_to_the_embedding_model_is_a_span_of_its_own_kind() -> None:
    described = describe(EmbeddingPart("openai:text-embedding-3-small"), TRACE)

    assert described.name == "embeddings text-embedding-3-small"
    assert described.attributes["gen_ai.operation.name"] == "embeddings"


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("select id from runs where id = $1", "SELECT runs"),
        ("select 1", "SELECT"),
        ("select id from runs for update of runs", "SELECT runs"),
        ("with late as materialized (select 1 from jobs) select * from late join runs on true", "SELECT jobs"),
        ("with late(id) as (select unnest($1)) select * from late join runs on true", "SELECT runs"),
        ("insert into runs (id) values ($1) on conflict (id) do update set id = excluded.id", "INSERT runs"),
        ("update runs r set worker = null; delete from jobs", "UPDATE runs, DELETE jobs"),
        ("select extract(epoch from now()) from processes", "SELECT processes"),
        (BEGIN_LIMITED, "BEGIN"),
        ("commit", "COMMIT"),
        ("", "UNKNOWN"),
    ],
)
def test_a_statement_is_named_by_what_it_does(sql: str, name: str) -> None:
    assert summarize_statement(sql).name == name
    assert summarize_statement(sql).operation == name.split(maxsplit=1)[0].rstrip(",")


def test_every_statement_of_the_service_has_a_short_name() -> None:
    names = [summarize_statement(statement.text).name for statement in _statements()]

    assert len(names) > 200
    assert max(map(len, names)) < 100
    assert {name.split()[0] for name in names} == {"SELECT", "INSERT", "UPDATE", "DELETE", "SET"}
    assert "SELECT created_at" not in names


def _statements() -> Iterator[Statement]:
    for module in pkgutil.walk_packages(throughline.db.__path__, "throughline.db."):
        for value in vars(importlib.import_module(module.name)).values():
            yield from (one for one in (value.values() if isinstance(value, dict) else [value]) if _is_one(one))


def _is_one(value: object) -> bool:
    return isinstance(value, Statement)


def test_the_newest_messages_of_a_long_prompt_are_kept() -> None:
    old, new = PromptMessage(Role.USER, "old " * MOST_CHARACTERS), PromptMessage(Role.USER, "new")
    older = PromptMessage(Role.USER, "older")

    said = json.loads(input_messages([older, old, new]))

    assert [message["parts"][0]["content"][:4] for message in said] == ["old ", "new"]
    assert len(input_messages([older, old, new])) < MOST_CHARACTERS + 1_000


def test_images_are_named_and_not_sent() -> None:
    content = (TextBlock("look"), ImageBlock("data:image/png;base64,AAAA"))

    assert "AAAA" not in input_messages([PromptMessage(Role.USER, content)])


def test_single_texts_are_cut() -> None:
    assert len(cut("a" * 2 * MOST_CHARACTERS)) == MOST_CHARACTERS
    assert len(system_instructions("a" * 2 * MOST_CHARACTERS)) < MOST_CHARACTERS + 100
