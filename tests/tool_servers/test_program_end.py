"""The end of a server that is a program."""

import asyncio
import os
import time

import pytest

from throughline.domain.tool_server import ToolServer
from throughline.tools.mcp_client.bounds import Bounds

pytest.importorskip("mcp.client.client", reason="the extra `mcp` is not installed")

from throughline.tools.mcp_client.stdio import connect_program

READS = ToolServer("fake", command=("sh", "-c", "read -r _"))


async def test_the_end_of_programs_is_awaited_also_if_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    kill, wait = os.killpg, os.waitpid

    async def connect() -> None:
        variables = {"PATH": os.environ["PATH"]}
        async with connect_program(READS, variables, Bounds(), lambda _reason: None, asyncio.Lock()):
            pass

    def kill_and_cancel(group: int, sign: int) -> None:
        connecting.cancel()
        kill(group, sign)

    def wait_late(pid: int, options: int) -> tuple[int, int]:
        time.sleep(0.1)  # in a thread of the event loop's child watcher
        return wait(pid, options)

    monkeypatch.setattr(os, "killpg", kill_and_cancel)
    monkeypatch.setattr(os, "waitpid", wait_late)
    connecting = asyncio.create_task(connect())
    with pytest.raises(asyncio.CancelledError):
        await connecting

    assert asyncio.all_tasks() == {asyncio.current_task()}
