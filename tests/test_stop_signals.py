"""Signals that stop a program while it starts, and one that must not."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine

import pytest
import uvloop

from throughline.stopping import Stopping, command_ignoring_hangup


async def test_a_second_signal_does_not_cut_short_what_ends_a_starting_program() -> None:
    stopping: list[Stopping] = []
    ended: list[str] = []

    async def program() -> None:
        stopping.append(Stopping())
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append("connections")

    starting = asyncio.create_task(program())
    await asyncio.sleep(0)
    stopping[0].stop()
    await asyncio.sleep(0)
    stopping[0].stop()
    await asyncio.wait({starting})

    assert starting.cancelled()
    assert ended == ["connections"]


@pytest.mark.process
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_program_that_has_no_handler_yet_outlives_a_hangup(run: Callable[[Coroutine[None, None, int]], int]) -> None:
    async def hang_up_and_terminate() -> int:
        program = "print('begun', flush=True); import time; time.sleep(1000)"
        process = await asyncio.create_subprocess_exec(
            *command_ignoring_hangup([sys.executable, "-S", "-c", program]), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGHUP)  # of two signals the one with the smaller number is taken first
        process.send_signal(signal.SIGTERM)
        return await process.wait()

    assert run(hang_up_and_terminate()) == -signal.SIGTERM
