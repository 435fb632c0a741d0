"""The side job that embeds messages, in rounds between which other jobs may run."""

from throughline.recall.embed_missing import EmbedHistory
from throughline.worker.jobs import NotDone


async def embed_history(history: EmbedHistory, subject: str) -> NotDone | None:
    """Embed messages for one round. Raises the model's errors, and DatabaseUnavailable."""
    pause = await history.run(subject)
    return None if pause is None else NotDone(pause)
