"""However many turns compute at once, few threads do."""

import asyncio
import threading

from app.computing import limit_computing


async def test_so_many_threads_compute_and_no_more() -> None:
    busy, most, lock, two_at_once = 0, 0, threading.Lock(), threading.Barrier(2)

    def compute() -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        two_at_once.wait(timeout=20)
        with lock:
            busy -= 1

    limit_computing(2)
    await asyncio.gather(*(asyncio.to_thread(compute) for _ in range(20)))

    assert most == 2
