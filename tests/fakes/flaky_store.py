"""The real store with failures thrown in: the first calls of a named intent raise, later ones go through."""

from typing import Any

from throughline.db.runs.events import EventRepository
from throughline.db.runs.repository import RunRepository
from throughline.db.sessions.messages import MessageRepository
from throughline.db.summaries.repository import SummaryRepository


class FlakyStore:
    """Raises the errors of `failures[intent]` one by one, then hands the calls on to the real store."""

    def __init__(
        self,
        store: RunRepository | MessageRepository | EventRepository | SummaryRepository,
        **failures: list[Exception],
    ) -> None:
        self._store = store
        self._failures = failures

    def __getattr__(self, intent: str) -> Any:  # noqa: ANN401  # stands for every method of the store
        real = getattr(self._store, intent)
        failures = self._failures.get(intent)
        if not failures:
            return real

        async def fail(*_: object, **__: object) -> None:
            raise failures.pop(0)

        return fail
