"""The recorder of traces that the settings choose. OpenTelemetry's SDK is imported only if tracing is on."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from throughline.domain.errors import SettingInvalid
from throughline.domain.process import Process
from throughline.ports.tracing import NO_TRACING, Tracing
from throughline.settings import Settings, read_variable

if TYPE_CHECKING:
    from throughline.tracing.open_tracing import Exporting

TRACES_PATH = "/v1/traces"
_HEADER_NAME, _HEADER_VALUE = re.compile(r"[A-Za-z0-9_-]+"), re.compile(r"[ -~]+")
NOT_INSTALLED = "TRACING=otlp needs packages that are not installed: pip install 'throughline[otel]'"


@asynccontextmanager
async def open_tracing(settings: Settings, process: Process) -> AsyncGenerator[Tracing]:
    """Yield the recorder of traces; at the end of the block the last spans are sent.

    Raises SettingInvalid if the packages are not installed or the headers cannot be read.
    """
    if settings.tracing == "off":
        yield NO_TRACING
        return
    exporting = _start_exporting(settings, process)
    try:
        yield exporting.tracing
    finally:
        await asyncio.to_thread(exporting.close)


def _start_exporting(settings: Settings, process: Process) -> "Exporting":
    try:
        from throughline.tracing.open_tracing import Exporting, TracingConfig  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        raise SettingInvalid(NOT_INSTALLED) from error
    config = TracingConfig(
        endpoint=traces_url(settings.tracing_endpoint),
        headers=read_headers(settings.tracing_headers_env),
        sample_ratio=settings.tracing_sample_ratio,
        with_texts=settings.tracing_texts,
        service={
            "service.name": "throughline",
            "service.version": process.version,
            "service.instance.id": process.name,
        },
    )
    return Exporting(config)


def traces_url(endpoint: str) -> str:
    """Return the address to which traces are sent: `/v1/traces` of an address without a path."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + TRACES_PATH


def read_headers(variable: str) -> Mapping[str, str]:
    """Return the HTTP headers in a variable, `name=value` separated by commas. Raises SettingInvalid.

    Values may have escapes such as `%20`, as in the variable that OpenTelemetry's own exporters read.
    """
    if not variable:
        return {}
    written = read_variable(variable)
    if not written:
        raise SettingInvalid(f"TRACING_HEADERS_ENV names {variable}, which is not set")
    pairs = [pair.partition("=") for pair in written.split(",") if pair.strip()]
    headers = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    if not all(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value) for name, value in headers.items()):
        raise SettingInvalid(f"{variable} must hold HTTP headers: name=value, separated by commas")
    return headers
