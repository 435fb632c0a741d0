"""A server that traces are sent to by OTLP over HTTP; it keeps what it is sent."""

import gzip
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class TraceCollector:
    """The spans that arrived, and the requests that brought them. `release` lets a hanging server go on."""

    url: str = ""
    status: int = 200
    hangs: bool = False
    paths: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    resources: list[Mapping[str, str]] = field(default_factory=list)
    span_names: list[str] = field(default_factory=list)
    whole: bytes = b""
    release: threading.Event = field(default_factory=threading.Event)

    def receive(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.paths.append(path)
        self.headers.append(headers)
        request = ExportTraceServiceRequest.FromString(gzip.decompress(body))
        self.whole += request.SerializeToString()
        for found in request.resource_spans:
            self.resources.append({one.key: one.value.string_value for one in found.resource.attributes})
            self.span_names += [span.name for scope in found.scope_spans for span in scope.spans]


@contextmanager
def trace_collector(*, status: int = 200, hangs: bool = False) -> Generator[TraceCollector]:
    """Run a collector that answers with `status`, or never."""
    collector = TraceCollector(status=status, hangs=hangs)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that http.server looks for
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.receive(self.path, dict(self.headers.items()), body)
            if collector.hangs:
                collector.release.wait()
                return
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as http.server names it
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield collector
        finally:
            collector.release.set()
            server.shutdown()
            thread.join()
