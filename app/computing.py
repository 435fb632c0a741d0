"""How many threads of this process work on long texts at the same time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor


def limit_computing(threads: int) -> None:
    """Let `asyncio.to_thread` of the running loop use so many threads; further work waits in line.

    Hundreds of turns may be open. If each of them computed in a thread of its own, the event loop, which needs the
    interpreter as they do, would get a small share of it and answer nobody in time.
    """
    executor = ThreadPoolExecutor(threads, thread_name_prefix="compute")
    asyncio.get_running_loop().set_default_executor(executor)
