"""The side jobs that embed texts, in rounds between which other jobs may run."""

from collections.abc import Awaitable, Callable

from throughline.recall.embed_missing import Rest
from throughline.worker.jobs import NotDone


async def embed_in_rounds(run: Callable[[str], Awaitable[Rest | None]], subject: str) -> NotDone | None:
    """Do one round of an embedding job: call `run` with the job's subject, the name of the embedding model.

    Return None if the job is done, else the pause before its next round. Raises the model's errors, and
    DatabaseUnavailable.
    """
    rest = await run(subject)
    return None if rest is None else NotDone(rest.pause, has_failed=rest.has_failed)
