"""Transport to a server that is a program: it gets messages on its standard input and answers on its output, by line.

The program runs in a process group of its own. It gets no variables of the service but those named, and it ends with
the service, however that ends.
"""

import asyncio
import json
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCMessage, jsonrpc_message_adapter

from throughline.domain.message import clean_text
from throughline.domain.tool_server import ToolServer
from throughline.tools.mcp_client.bounds import Bounds, NotConnected

log = structlog.get_logger(__name__)

GUARD = 'read -r _; kill -s KILL -- "-$1"'
"""Kills the process group `$1` when its input ends: with the service, even if that was killed."""

PATH = "PATH"
BURST = 100
BURST_SECONDS = 0.1
"""So many messages of a server are read in this time, so that a flood of them leaves time for everything else."""

PAUSE_SECONDS = 0.1
POLL_SECONDS = 0.02
KILLED_SECONDS = 5.0
"""How long the system may take to end a killed program."""

STDERR_BYTES = 65_536
MAX_LOGGED = 1_000

Report = Callable[[str], None]
Received = MemoryObjectSendStream[SessionMessage | Exception]
Sent = MemoryObjectReceiveStream[SessionMessage]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@dataclass(frozen=True, slots=True)
class _Program:
    """A started program. Only its transport can close pipes that are not read to their end."""

    process: Process
    transport: asyncio.SubprocessTransport


@asynccontextmanager
async def connect_program(
    server: ToolServer, variables: Mapping[str, str], bounds: Bounds, report: Report, starting: asyncio.Lock
) -> AsyncGenerator[Streams]:
    """Start the server's program and yield the streams of its messages; at the end of the block, end the program.

    `report` is called with the reason when the program can no longer be used. `starting` is held while the program is
    started: each start holds up the event loop for some milliseconds. Raises NotConnected.
    """
    async with starting:
        program = await _start(server, variables, bounds)
        guard = await _guard(program.process)
    process = program.process
    received, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    from_session, sent = anyio.create_memory_object_stream[SessionMessage](0)
    pumps = [
        asyncio.create_task(_read(process, received, bounds, report)),
        asyncio.create_task(_write(process, sent, report)),
        asyncio.create_task(_log_errors(process, server.name)),
    ]
    try:
        yield to_session, from_session
    finally:
        for pump in pumps:  # so that none reports the end of the program, which is now wanted
            pump.cancel()
        try:
            await _end(process, bounds)
        finally:
            _kill_group(process)
            for ended in (guard, program):
                _kill_and_close(ended)
            for stream in (received, to_session, from_session, sent):
                stream.close()
            ends = [asyncio.ensure_future(ended.process.wait()) for ended in (program, guard)]
            await _finish(asyncio.wait([*pumps, *ends], timeout=KILLED_SECONDS))


async def _start(server: ToolServer, variables: Mapping[str, str], bounds: Bounds) -> _Program:
    name, *arguments = server.command
    program = shutil.which(name, path=variables.get(PATH))
    if program is None:
        raise NotConnected(f"there is no program {name!r} on PATH")
    try:
        return await _spawn([program, *arguments], variables, output=PIPE, limit=bounds.message_bytes)
    except (OSError, ValueError) as error:
        raise NotConnected(f"the program {name!r} cannot be started: {type(error).__name__}") from error


async def _guard(process: Process) -> _Program:
    """Start the guard of the program, which is killed if that fails."""
    try:
        await asyncio.sleep(0)  # the program's start held up the event loop, as this one will
        return await _spawn(["/bin/sh", "-c", GUARD, "sh", str(process.pid)], {}, output=DEVNULL)
    except BaseException:
        _kill_group(process)
        raise


async def _spawn(
    command: Sequence[str], variables: Mapping[str, str], *, output: int, limit: int = MAX_LOGGED
) -> _Program:
    """Start a program in a process group of its own, as `create_subprocess_exec` does, which hides the transport."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=limit, loop=loop),
        *command,
        env=dict(variables),
        stdin=PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    return _Program(Process(transport, protocol, loop), transport)


async def _read(process: Process, received: Received, bounds: Bounds, report: Report) -> None:
    assert process.stdout is not None
    reason = "its program ended, or closed its output"
    try:
        await _receive(process.stdout, received)
    except ValueError:
        reason = f"it sent a message of more than {bounds.message_bytes:,} bytes"
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        reason = "the connection was closed"
    report(reason)
    received.close()


async def _receive(output: asyncio.StreamReader, received: Received) -> None:
    """Pass the messages on. Raises ValueError for a line that is too long."""
    now, count = asyncio.get_running_loop().time, 0
    began = now()
    while line := await output.readline():
        message = _parse(line)
        if message is None:
            continue
        await received.send(SessionMessage(message))
        count += 1
        if count == BURST:
            await asyncio.sleep(began + BURST_SECONDS - now())
            began, count = now(), 0


def _parse(line: bytes) -> JSONRPCMessage | None:
    """Return the message in the line, None for anything else, such as what a program prints for people.

    Half surrogate pairs, which the protocol's parser refuses, are replaced.
    """
    with suppress(ValueError):
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    with suppress(ValueError, RecursionError):
        text = clean_text(json.dumps(json.loads(line), ensure_ascii=False))
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    return None


async def _write(process: Process, sent: Sent, report: Report) -> None:
    assert process.stdin is not None
    try:
        async for message in sent:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(f"{text}\n".encode())
            await process.stdin.drain()
    except (OSError, RuntimeError):  # RuntimeError: uvloop's closed pipe
        report("its program ended, or closed its input")


async def _log_errors(process: Process, name: str) -> None:
    """Log what the program writes to its standard error, cut, and slowly enough to hold up a flood."""
    assert process.stderr is not None
    while piece := await process.stderr.read(STDERR_BYTES):
        log.debug("mcp server wrote", server=name, text=clean_text(piece[:MAX_LOGGED].decode(errors="replace")))
        await asyncio.sleep(PAUSE_SECONDS)


async def _end(process: Process, bounds: Bounds) -> None:
    """End the program as the protocol says: by the end of its input, then by a signal."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        await _wait_for_exit(process, bounds.close_seconds)
        return
    _signal_group(process, signal.SIGTERM)
    with suppress(TimeoutError):
        await _wait_for_exit(process, bounds.close_seconds)


async def _wait_for_exit(process: Process, seconds: float) -> None:
    """Return when the program has ended. Raises TimeoutError.

    `Process.wait` would also wait until its output is read, by whatever still holds it open.
    """
    async with asyncio.timeout(seconds):
        while process.returncode is None:  # noqa: ASYNC110  # nothing tells it, as said above
            await asyncio.sleep(POLL_SECONDS)


async def _finish(work: Coroutine[object, object, object]) -> None:
    """Wait for the work's end, also if this is cancelled: what was killed is reaped by nobody else."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


def _kill_and_close(program: _Program) -> None:
    """Kill the program, and close its pipes."""
    with suppress(ProcessLookupError):
        program.process.kill()
    program.transport.close()


def _kill_group(process: Process) -> None:
    """Kill the program, and what it started."""
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: Process, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)
