"""The real service as its own process, for tests that kill it."""

import asyncio
import random
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import httpx

from fakes.programs import ForkServer, Program, Start, environment_for_programs
from fakes.run_folder import file_lock, run_folder, until_exit
from fakes.waiting import HANG_SECONDS

THIRD_PARTY_ENVIRONMENT = {
    "PGQUEUER_PREFIX": "their_",
    "PGQUEUER_SCHEMA": "theirs",
    "PGQUEUER_QUEUE_TABLE": "their_queue",
    "LANGCHAIN_TRACING": "true",
    "LANGCHAIN_HANDLER": "langchain",
    "LANGSMITH_TRACING": "true",
    "LANGSMITH_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_TRACES_EXPORTER": "console",
}
"""Set for all processes: libraries read these by themselves, some when they are imported; they must lead nowhere."""

RunScript: TypeAlias = Callable[..., Awaitable[tuple[int | None, str, str]]]
"""`run_script` or `interpret_script`."""

_STARTED: list[tuple[Start, Program]] = []
"""What this process has started and not yet found ended."""

PORTS = range(20_000, 32_000)
"""Below those that systems give to connections by themselves (from 32,768 on Linux, 49,152 elsewhere)."""


@dataclass(slots=True)
class ServiceProcess:
    """A started service; `client` waits long enough for slow answers."""

    process: Program
    url: str
    client: httpx.AsyncClient
    log: Path

    async def kill(self) -> None:
        await _end(self.process)

    async def terminate(self) -> int:
        self.process.terminate()
        return await self.process.wait()

    async def new_session(self, agent: str = "assistant") -> str:
        response = await self.client.post("/v1/sessions", json={"agent": agent})
        response.raise_for_status()
        return str(response.json()["id"])

    async def send(self, session: str, content: str, **headers: str) -> httpx.Response:
        return await self.client.post(f"/v1/sessions/{session}/messages", json={"content": content}, headers=headers)

    async def history(self, session: str) -> list[dict[str, object]]:
        response = await self.client.get(f"/v1/sessions/{session}/messages", params={"limit": 200})
        response.raise_for_status()
        return list(response.json()["data"])


def free_port() -> int:
    """Return a port that nobody listens at and no other process of this run is given."""
    last_given = run_folder() / "last_port"
    with file_lock(last_given):
        port = int(last_given.read_text()) if last_given.exists() else random.choice(PORTS)  # no secret
        while not _is_free(port := port + 1 if port + 1 in PORTS else PORTS.start):
            pass
        last_given.write_text(str(port))
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as servers do: one that has just ended is no matter
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@asynccontextmanager
async def run_service(
    folder: Path, environment: Mapping[str, str], *arguments: str, port: int | None = None
) -> AsyncGenerator[ServiceProcess]:
    """Start `serve` with its data in `folder`; yields once it answers, kills it at the end."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    log = folder / f"service-{port}.log"
    process = await start_program(folder, environment, "serve", "--port", str(port), *arguments, log=log)
    async with httpx.AsyncClient(
        base_url=url, timeout=HANG_SECONDS, limits=httpx.Limits(max_connections=200)
    ) as client:
        try:
            await _until_ready(process, client, log)
            yield ServiceProcess(process, url, client, log)
        finally:
            await _end(process)


@asynccontextmanager
async def run_worker(
    folder: Path, environment: Mapping[str, str], *arguments: str, name: str = "worker"
) -> AsyncGenerator[Program]:
    """Start `worker`; yields once it claims runs, kills it at the end."""
    log = folder / f"{name}.log"
    log.unlink(missing_ok=True)
    process = await start_program(folder, environment, "worker", *arguments, log=log)
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while "worker is running" not in log.read_text():
                assert process.returncode is None, f"the worker ended with {process.returncode}: {tail(log)}"
                await asyncio.sleep(0.05)
        yield process
    finally:
        await _end(process)


async def start_program(
    folder: Path, environment: Mapping[str, str], *arguments: str, log: Path, module: str = "throughline.main"
) -> Program:
    """Start the command line with nothing of this machine's settings."""
    return await fork(Start(folder, {**THIRD_PARTY_ENVIRONMENT, **environment}, arguments, log, module))


async def fork(start: Start) -> Program:
    """Start a program by the fork server."""
    program = await asyncio.to_thread(_fork_server().start_program, start)
    _STARTED.append((start, program))
    return program


async def kill_programs_using(name: str) -> None:
    """Kill the programs whose arguments or environment name a database or folder: a failed test left them there."""
    _STARTED[:] = [(start, program) for start, program in _STARTED if program.returncode is None]
    for start, program in _STARTED:
        if any(name in told for told in (*start.environment.values(), *start.arguments)):
            await _end(program)


async def _end(program: Program) -> None:
    program.kill()
    await program.wait()


async def run_command(
    folder: Path, environment: Mapping[str, str], *arguments: str, typed: str = ""
) -> tuple[int | None, str, str]:
    """Run a command, typed to from a file; return its exit code and what it printed and complained."""
    return await run_script(folder, {**THIRD_PARTY_ENVIRONMENT, **environment}, None, *arguments, typed=typed)


async def run_script(
    folder: Path, environment: Mapping[str, str], script: Path | None, *arguments: str, typed: str = ""
) -> tuple[int | None, str, str]:
    """Run a script, or the command line where that is None; return its exit code and what it printed and complained.

    Besides what KEPT names it sees `environment` only.
    """
    with tempfile.TemporaryDirectory(prefix="command-") as name:
        files = [Path(name) / part for part in ("told", "typed", "error_output")]
        files[1].write_text(typed)
        start = Start(folder, environment, arguments, files[0], "throughline.main", script, *files[1:])
        program = await fork(start)
        try:
            async with asyncio.timeout(HANG_SECONDS):
                code = await program.wait()
        finally:
            await _end(program)
        return code, files[0].read_text(), files[2].read_text()


async def interpret_script(
    folder: Path, environment: Mapping[str, str], script: Path, *arguments: str
) -> tuple[int | None, str, str]:
    """Run a script as `run_script` does, by an interpreter of its own: nothing is imported before it begins."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(script), *arguments),
        cwd=folder,
        env=environment_for_programs() | dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(HANG_SECONDS):
            told, complained = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, told.decode(), complained.decode()


@cache
def _fork_server() -> ForkServer:
    """Return the way to the fork server, which the first test that starts a program takes."""
    return until_exit(ForkServer.reach(THIRD_PARTY_ENVIRONMENT))


async def _until_ready(process: Program, client: httpx.AsyncClient, log: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not await is_ready(client):
            assert process.returncode is None, f"the service ended with {process.returncode}: {tail(log)}"
            await asyncio.sleep(0.03)
    assert process.returncode is None, f"somebody else answers at the port of the service: {tail(log)}"


async def is_ready(client: httpx.AsyncClient) -> bool:
    """Whether the service that the client speaks to says so; one that does not answer is not."""
    try:
        return (await client.get("/health/ready")).is_success
    except httpx.TransportError:
        return False


def tail(log: Path) -> str:
    """Return the end of a log, for a test's failure."""
    return log.read_text("utf-8", "replace")[-2000:]
