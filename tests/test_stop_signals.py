"""Signals that stop a program while it starts."""

import asyncio

from throughline.stopping import Stopping


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
