"""Starts what the benchmarks talk to: PostgreSQL, the provider doubles and the service, each as its own process."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from throughline.postgres_server import EmbeddedConfig, EmbeddedServer

ROOT = Path(__file__).resolve().parent.parent
DOUBLES = {"openai": ("fakes.provider_double.__main__", "/v1"), "anthropic": ("fakes.anthropic_double.__main__", "")}
"""For each provider the double's module, and what follows its address in the base URL for that provider's clients."""

MODEL = "double-128k-cl100k"
"""A model of OpenAI's double, for benchmarks that need only one."""

START_SECONDS = 90.0
STOP_SECONDS = 30.0


class StartFailed(Exception):
    """A process ended, or did not answer in time; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running process and the address it answers at."""

    url: str
    pid: int


@asynccontextmanager
async def run_postgres(folder: Path, *, may_create_databases: bool = False) -> AsyncGenerator[str]:
    """Run an embedded PostgreSQL; yields its address as the setting DATABASE_URL takes it."""
    config = EmbeddedConfig(data_dir=folder / "postgres", may_create_databases=may_create_databases)
    server = await EmbeddedServer.start(config)
    try:
        yield server.url
    finally:
        await server.stop()


@contextmanager
def run_double(folder: Path, provider: str = "openai", *, answer_seconds: float = 0.0) -> Generator[Running]:
    """Run a provider's double; its `url` is the base URL for that provider's clients."""
    module, path = DOUBLES[provider]
    arguments = ["--answer-seconds", str(answer_seconds)] if answer_seconds else []
    with run_server([module, *arguments], folder, {}, probe="/control/stats") as running:
        yield Running(f"{running.url}{path}", running.pid)


def write_agent(folder: Path, name: str, **settings: object) -> None:
    """Write the file of an agent (JSON is YAML, too) for the service that is started in the folder."""
    agents = folder / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    agent = {"name": name, "system_prompt": "You are a helpful assistant.", **settings}
    (agents / f"{name}.yaml").write_text(json.dumps(agent, indent=1), "utf-8")


@contextmanager
def run_service(
    folder: Path, environment: Mapping[str, str], *, double_url: str = "", module: str = "throughline.main"
) -> Generator[Running]:
    """Run `serve` on a free port with its data, its log and its agents in the folder.

    The default model is MODEL at the double's address, or offline without one. `module` is whose `main` is run.
    """
    (folder / "agents").mkdir(parents=True, exist_ok=True)
    settings = {
        "DEFAULT_LLM": f"openai:{MODEL}" if double_url else "offline",
        "DEFAULT_LLM_BASE_URL": double_url,
        "OPENAI_API_KEY": "benchmark",
        "ANTHROPIC_API_KEY": "benchmark",
        "LOG_LEVEL": "WARNING",
        "AGENTS_DIR": str(folder / "agents"),
        **environment,
    }
    command = [module, "serve", "--data-dir", str(folder / "data")]
    with run_server(command, folder, settings, probe="/health/ready") as running:
        yield running


@contextmanager
def run_server(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *, probe: str
) -> Generator[Running]:
    """Run a module's `main`, with its arguments and `--port`, until the block ends; its log is in the folder.

    Yields once it answers at the path `probe`. Raises StartFailed.
    """
    module, *arguments = command
    port = _free_port()
    url, log_path = f"http://127.0.0.1:{port}", folder / f"{module}.log"
    path = os.pathsep.join([str(ROOT / name) for name in ("app", ".", "tests")])
    merged = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment}
    with (
        log_path.open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()", *arguments, "--port", str(port)],
            stdout=log,
            stderr=log,
            env=merged,
            cwd=folder,
        ) as process,
    ):
        try:
            _wait_until_ready(process, url + probe, log_path)
            yield Running(url, process.pid)
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: "subprocess.Popen[bytes]", address: str, log_path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(address, timeout=5).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    end = log_path.read_text("utf-8", "replace")[-3000:]
    raise StartFailed(f"{process.args!r} ended with {process.returncode}, or did not answer at {address}: {end}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
