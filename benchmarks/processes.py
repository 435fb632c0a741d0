"""Starts what the benchmarks talk to: the provider doubles and the service, each as its own process."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parent.parent
DOUBLES = {"openai": ("fakes.provider_double", "/v1"), "anthropic": ("fakes.anthropic_double", "")}
"""For each provider the double's module, and what follows its address in the base URL for that provider's clients."""

START_SECONDS = 90.0
STOP_SECONDS = 30.0


class StartFailed(Exception):
    """A process ended, or did not answer in time; the text holds the end of its log."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service is started. `folder` holds its data, its log and is its working directory.

    `model` is the default model, at the double's address; empty where all agents name their own. `arguments` follow
    those of the command that are given here. `module` is a benchmark's own way to start the command line; empty: the
    real one.
    """

    folder: Path
    double_url: str = ""
    model: str = ""
    agents_dir: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    module: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A running process and the address it answers at."""

    url: str
    pid: int


@contextmanager
def run_double(folder: Path, provider: str = "openai", arguments: Sequence[str] = ()) -> Iterator[Running]:
    """Run a provider's double; its `url` is the base URL for that provider's clients."""
    module, path = DOUBLES[provider]
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", module, "--port", str(port), *arguments]
    with run_server(command, (f"{base}/control/stats", folder / f"double-{provider}.log"), {}) as pid:
        yield Running(f"{base}{path}", pid)


@contextmanager
def run_service(options: ServiceOptions) -> Iterator[Running]:
    """Run `throughline serve` on a free port, with the embedded server unless DATABASE_URL is set."""
    port = free_port()
    program = ["-m", options.module] if options.module else ["-c", "from throughline.main import main; main()"]
    command = [sys.executable, *program, "serve", "--port", str(port)]
    command += ["--data-dir", str(options.folder / "data"), *options.arguments]
    environment = {
        "DEFAULT_LLM": f"openai:{options.model}" if options.model else "offline",
        "DEFAULT_LLM_BASE_URL": options.double_url if options.model else "",
        "OPENAI_API_KEY": "benchmark",
        "ANTHROPIC_API_KEY": "benchmark",
        "LOG_LEVEL": "WARNING",
        **({"AGENTS_DIR": str(options.agents_dir)} if options.agents_dir else {}),
        **options.environment,
    }
    url = f"http://127.0.0.1:{port}"
    with run_server(command, (f"{url}/health/ready", options.folder / "service.log"), environment) as pid:
        yield Running(url, pid)


@contextmanager
def run_server(command: Sequence[str], probe: tuple[str, Path], environment: Mapping[str, str]) -> Iterator[int]:
    """Run a server until the block ends; `probe` is the address that answers once it is ready, and its log file.

    Yields its process id. Raises StartFailed.
    """
    address, log_path = probe
    path = os.pathsep.join([str(ROOT / folder) for folder in ("app", ".", "tests")])
    merged = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment}
    with (
        log_path.open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=merged, cwd=log_path.parent) as process,
    ):
        try:
            _wait_until_ready(process, address, log_path)
            yield process.pid
        finally:
            _stop(process)


def free_port() -> int:
    """Return a loopback port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: "subprocess.Popen[bytes]", address: str, log_path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartFailed(f"{process.args!r} ended with {process.returncode}: {_tail(log_path)}")
        try:
            if httpx.get(address, timeout=5).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise StartFailed(f"{process.args!r} did not answer at {address}: {_tail(log_path)}")


def _tail(path: Path) -> str:
    return path.read_text("utf-8", "replace")[-3000:]


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
