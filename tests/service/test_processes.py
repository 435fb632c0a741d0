"""Several processes with one port: started, replaced, killed, counted and stopped as one service."""

import asyncio
import os
import random
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from fakes.programs import environment_for_programs
from fakes.provider_double import ProviderDouble
from fakes.raw_sql import run_sql
from fakes.service_process import ServiceProcess, free_port, is_ready, run_command, run_service
from fakes.waiting import HANG_SECONDS, until, until_found

pytestmark = pytest.mark.slow

ASKERS = 6
STREAMS = 10
MANY_STREAMS = 50


@pytest.fixture
def on_slow_double(provider_double: ProviderDouble, on_double: Mapping[str, str]) -> Mapping[str, str]:
    """Settings with a model whose answers take longer than a process may take to end."""
    provider_double.answer_seconds = 6.0
    return {**on_double, "SHUTDOWN_GRACE_SECONDS": "1", "LEASE_SECONDS": "2"}


def children_of(service: ServiceProcess) -> dict[int, psutil.Process]:
    """Return the child processes by their numbers."""
    found = {}
    for child in psutil.Process(service.process.pid).children():
        command = ""
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # it has just ended
            command = " ".join(child.cmdline())
        if number := re.search(r"--child \d+:\d+:\d+:(\d+):", command):
            found[int(number[1])] = child
    return found


async def health(service: ServiceProcess) -> Mapping[str, object]:
    """Return what some process says of all, over a connection of its own; nothing if that process has just died."""
    try:
        async with httpx.AsyncClient(base_url=service.url, timeout=5) as client:
            return dict((await client.get("/health/ready")).json())
    except httpx.TransportError:
        return {}


async def until_all_serve(service: ServiceProcess) -> None:
    async def serve() -> bool:
        return (await health(service)).get("status") == "ok"

    await until_found(serve)


async def ask(service: ServiceProcess, number: int) -> tuple[str, str]:
    """Send a message in a session of its own, again and again until it is answered; return the session and text."""
    async with httpx.AsyncClient(base_url=service.url, timeout=HANG_SECONDS) as client:
        body, text = {"agent": "assistant"}, f"question {number}"
        session = (await _post(client, "/v1/sessions", body, f"session-{number}"))["id"]
        await _post(client, f"/v1/sessions/{session}/messages", {"content": text}, f"message-{number}")
        return str(session), text


async def _post(client: httpx.AsyncClient, path: str, body: Mapping[str, str], key: str) -> Mapping[str, object]:
    while True:
        with suppress(httpx.TransportError):
            response = await client.post(path, json=body, headers={"Idempotency-Key": key})
            response.raise_for_status()
            return dict(response.json())
        await asyncio.sleep(0.01)


async def play_kills(service: ServiceProcess, kills: int) -> None:
    """Kill children one after the other while messages are sent; each must be answered once."""
    numbers = iter(range(1_000_000))
    asked: list[tuple[str, str]] = []
    is_over = asyncio.Event()

    async def keep_asking() -> None:
        while not is_over.is_set():
            asked.append(await ask(service, next(numbers)))

    async with asyncio.timeout(HANG_SECONDS * kills), asyncio.TaskGroup() as group:
        for _ in range(ASKERS):
            group.create_task(keep_asking())
        for _ in range(kills):
            await _kill_one(service, asked)
        is_over.set()
    for session, text in asked:
        history = await service.history(session)
        assert [message["role"] for message in history] == ["user", "assistant"], (session, history)
        assert history[0]["content"] == text


async def _kill_one(service: ServiceProcess, asked: list[tuple[str, str]]) -> None:
    children, before = children_of(service), len(asked)
    number = random.choice(sorted(children))  # no secret
    await asyncio.sleep(random.uniform(0, 0.2))
    children[number].send_signal(signal.SIGKILL)
    while number in children_of(service) or len(children_of(service)) < len(children) or len(asked) < before + ASKERS:
        await asyncio.sleep(0.02)
    await until_all_serve(service)


async def test_a_killed_process_is_replaced_and_each_message_is_answered_once(
    folder: Path, on_double: Mapping[str, str]
) -> None:
    temporary = folder / "temporary"
    temporary.mkdir()
    settings = {**on_double, "LEASE_SECONDS": "2", "TMPDIR": str(temporary)}
    async with run_service(folder, settings, "--processes", "2") as service:
        await until_all_serve(service)
        [metrics] = temporary.glob("throughline-*")
        shutil.rmtree(metrics)  # as a program that cleans up does
        await play_kills(service, 2)
        assert await service.terminate() == 0


@pytest.mark.proof
@pytest.mark.timeout(10 * HANG_SECONDS)  # ten starts of a process, each beside others that are busy
async def test_ten_killed_processes_lose_no_message(folder: Path, on_double: Mapping[str, str]) -> None:
    settings = {**on_double, "LEASE_SECONDS": "2"}
    async with run_service(folder, settings, "--processes", "2") as service:
        await until_all_serve(service)
        await play_kills(service, 10)
        assert await service.terminate() == 0


class Stream:
    """A streamed message in a session. `types` has the events so far, over all connections."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.types: list[str] = []
        self._last = ""

    async def follow(self, service: ServiceProcess) -> None:
        """Read to the end, and go on after the last event each time the stream is cut."""
        async with httpx.AsyncClient(base_url=service.url, timeout=HANG_SECONDS) as client:
            while not self.types or self.types[-1] not in {"run.completed", "run.failed"}:
                with suppress(httpx.TransportError):
                    await self._read(client)

    async def _read(self, client: httpx.AsyncClient) -> None:
        headers = {"Accept": "text/event-stream", "Idempotency-Key": self.session}
        headers |= {"Last-Event-ID": self._last} if self._last else {}
        path = f"/v1/sessions/{self.session}/messages"
        async with client.stream("POST", path, json={"content": "tell me"}, headers=headers) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                self._last = value if name == "id" else self._last
                self.types += [value] if name == "event" else []


async def play_replacement(service: ServiceProcess, streams: int) -> None:
    """Replace all processes while answers are streamed; each stream ends as it would have."""
    followed = [Stream(await service.new_session()) for _ in range(streams)]
    before = children_of(service)
    async with asyncio.timeout(4 * HANG_SECONDS), asyncio.TaskGroup() as group:
        for stream in followed:
            group.create_task(stream.follow(service))
        await asyncio.sleep(0.3)
        os.kill(service.process.pid, signal.SIGHUP)
        while children_of(service).keys() & before.keys() or len(children_of(service)) != len(before):
            assert (await service.client.get("/health/live")).is_success
            await asyncio.sleep(0.05)
    assert Counter(stream.types[-1] for stream in followed) == {"run.completed": streams}
    for stream in followed:
        history = await service.history(stream.session)
        assert [message["role"] for message in history] == ["user", "assistant"]


async def test_replaced_processes_break_no_stream_for_good(folder: Path, on_slow_double: Mapping[str, str]) -> None:
    async with run_service(folder, on_slow_double, "--processes", "2") as service:
        await until_all_serve(service)
        await play_replacement(service, STREAMS)
        children = children_of(service)
        for child in children.values():
            child.send_signal(signal.SIGHUP)
        await ask(service, 1)
        assert children_of(service) == children
        assert await service.terminate() == 0


async def test_replaced_processes_do_not_serve_a_wide_open_address_without_a_key(
    folder: Path, on_double: Mapping[str, str], database_url: str
) -> None:
    file = folder / ".env"
    file.write_text("HOST=0.0.0.0\nBOOTSTRAP_API_KEY=a-key-of-more-than-24-characters\n")
    async with run_service(folder, on_double, "--processes", "2") as service:
        await until_all_serve(service)
        before = children_of(service).keys()
        await run_sql(database_url, "delete from api_keys")
        file.write_text("HOST=127.0.0.1\n")
        os.kill(service.process.pid, signal.SIGHUP)
        await until(lambda: "replacement given up" in service.log.read_text())
        assert children_of(service).keys() == before
        assert "HOST 0.0.0.0 would serve other machines without a key" in " ".join(service.log.read_text().split())


BEHIND_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
terminal = int(sys.argv[1])
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "throughline", "serve", "--processes", "2", "--port", sys.argv[2]])
"""


async def test_a_closed_terminal_ends_the_service_wherever_its_output_goes(
    folder: Path, on_double: Mapping[str, str]
) -> None:
    ours, theirs = os.openpty()
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BEHIND_TERMINAL, str(theirs), str(port)),
        cwd=folder,
        env=environment_for_programs() | dict(on_double),
        stdin=theirs,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=(theirs,),
        start_new_session=True,
    )
    os.close(theirs)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until_found(lambda: is_ready(client))
        os.close(ours)
        assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 0
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.proof
async def test_fifty_streams_outlive_a_replacement(folder: Path, on_slow_double: Mapping[str, str]) -> None:
    async with run_service(folder, on_slow_double, "--processes", "2") as service:
        await until_all_serve(service)
        await play_replacement(service, MANY_STREAMS)


async def test_status_health_and_metrics_tell_of_all_processes(folder: Path, on_double: Mapping[str, str]) -> None:
    async with run_service(folder, {**on_double, "PROCESSES": "2"}) as service:
        await until_all_serve(service)
        for number in range(8):
            await ask(service, number)
        async with httpx.AsyncClient(base_url=service.url) as other:
            await until_found(lambda: _shows(other, "throughline_jobs_taking 2.0"))
            texts = [(await client.get("/metrics")).text for client in (service.client, other)]
        status = (await service.client.get("/v1/status")).json()
        pids = {str(child.pid) for child in children_of(service).values()}
        children_of(service)[1].kill()

        async def is_missed() -> bool:
            return (await health(service)).get("reasons") == {"processes": "1 of 2 processes serve"}

        await until_found(is_missed)
        await until_all_serve(service)
        text = (await service.client.get("/metrics")).text
        children = children_of(service).values()
        await service.kill()  # its children end with it
        await until(lambda: not any(map(_is_running, children)))
    ended = re.compile(r'^throughline_turns_total\{agent="assistant",status="succeeded"\} (.*)$', re.MULTILINE)
    assert [found[1] for each in (*texts, text) for found in ended.finditer(each)] == ["8.0"] * 3
    assert {process["name"].split(":")[1] for process in status["processes"]} == pids


async def _shows(client: httpx.AsyncClient, line: str) -> bool:
    return line in (await client.get("/metrics")).text.splitlines()


def _is_running(child: psutil.Process) -> bool:
    try:
        return child.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"AGENTS_DIR": "missing-folder"}, "missing-folder"),
        ({"PROCESSES": "0"}, "PROCESSES: '0' is neither `auto` nor a number from 1 to 256"),
        pytest.param(
            {"PROCESSES": "255"},
            "PROCESSES: 255 processes, and one more while they are replaced, need 3328 connections",
            marks=pytest.mark.listening("each process has a connection less"),
        ),
        ({"BOOTSTRAP_API_KEY": "short"}, "at least 24 characters"),
    ],
    ids=["of children", "no number", "too many", "of all"],
)
async def test_what_cannot_start_says_why_once(
    folder: Path, on_double: Mapping[str, str], environment: Mapping[str, str], said: str
) -> None:
    settings = {**on_double, "PROCESSES": "3", "PORT": "0", **environment}
    code, _, complained = await run_command(folder, settings, "serve")
    assert code == 1
    assert complained.count("Error:") == 1
    assert said in " ".join(complained.split())
