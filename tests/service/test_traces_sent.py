"""The real program sends its traces to the address of its settings, and nowhere else."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.service_process import run_service
from fakes.trace_collector import trace_collector

pytestmark = pytest.mark.slow
SECRET = "xylophone"


@pytest.mark.parametrize("texts", ["false", "true"])
async def test_traces_of_turns_reach_the_collector_of_the_settings(
    folder: Path, on_double: Mapping[str, str], texts: str
) -> None:
    with trace_collector() as collector, trace_collector() as elsewhere:
        environment = {
            **on_double,
            "TRACING": "otlp",
            "TRACING_ENDPOINT": collector.url,
            "TRACING_TEXTS": texts,
            "TRACING_HEADERS_ENV": "COLLECTOR_HEADERS",
            "COLLECTOR_HEADERS": "x-team=blue",
            "OTEL_EXPORTER_OTLP_ENDPOINT": elsewhere.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=of-another-program",
            "OTEL_SDK_DISABLED": "true",
            "OTEL_TRACES_SAMPLER": "always_off",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=other",
        }
        async with run_service(folder, environment) as service:
            session = await service.new_session()
            (await service.send(session, f"Say {SECRET}.")).raise_for_status()
            assert await service.terminate() == 0

    assert collector.span_names.count("invoke_agent assistant") == 1
    assert {"llm_node", "wait in queue", "INSERT messages"} & set(collector.span_names)
    assert "other" not in {resource["service.name"] for resource in collector.resources}
    assert {headers["x-team"] for headers in collector.headers} == {"blue"}
    assert not any("x-key" in headers for headers in collector.headers)
    assert (SECRET.encode() in collector.whole) == (texts == "true")
    assert elsewhere.paths == []
    assert '"trace_id"' in service.log.read_text()
