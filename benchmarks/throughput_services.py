"""Starts the two services that `benchmarks.throughput` compares, on one database server and with one kind of model."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from benchmarks.processes import Running, ServiceOptions, free_port, run_double, run_server, run_service
from benchmarks.servers import dsn_of

ModelKind: TypeAlias = Literal["http", "in-process"]
KINDS: tuple[ModelKind, ...] = ("http", "in-process")
MODEL = "double-128k-cl100k"
AGENT = "name: plain\nsystem_prompt: You are a helpful assistant.\n"
"""No tools: the bare turn offers none either."""


@dataclass(frozen=True, slots=True)
class Services:
    """Our service and the bare one, running."""

    ours: Running
    bare: Running


@contextmanager
def run_both(folder: Path, database_url: str, kind: ModelKind, answer_seconds: float = 0.0) -> Iterator[Services]:
    """Run both services: with a provider double that takes so long to answer, or with an instant model inside them."""
    if kind == "in-process":
        with _both(folder, database_url, "") as services:
            yield services
        return
    arguments = ("--answer-seconds", str(answer_seconds))
    with run_double(folder, "openai", arguments) as double, _both(folder, database_url, double.url) as services:
        yield services


def service_options(folder: Path, database_url: str, double_url: str) -> ServiceOptions:
    """Return how our service is started; without a double's address, with an instant model inside it."""
    return ServiceOptions(
        folder=folder,
        double_url=double_url,
        model=MODEL,
        agents_dir=_agents(folder),
        environment={"DATABASE_URL": database_url},
        module="" if double_url else "benchmarks.instant_service",
    )


@contextmanager
def _both(folder: Path, database_url: str, double_url: str) -> Iterator[Services]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.bare_service", "--port", str(port), "--dsn", dsn_of(database_url)]
    command += ["--model", MODEL, "--model-url", double_url] if double_url else ["--instant"]
    bare = f"http://127.0.0.1:{port}"
    probe = (f"{bare}/health/ready", folder / "bare.log")
    with (
        run_service(service_options(folder, database_url, double_url)) as service,
        run_server(command, probe, {}) as pid,
    ):
        yield Services(service, Running(bare, pid))


def _agents(folder: Path) -> Path:
    agents = folder / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "plain.yaml").write_text(AGENT)
    return agents
