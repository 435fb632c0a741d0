"""Storage of token count calibrations, one per model."""

from throughline.context.calibration import Calibration
from throughline.db.connection.transactions import Transactions
from throughline.db.statements.sql import sql

_LOAD = sql("select ratio, samples, learned_window from token_calibration where model = :model")
_SAVE = sql("""
    insert into token_calibration (model, ratio, samples, learned_window)
    values (:model, :ratio, :samples, :learned_window)
    on conflict (model) do update set ratio = excluded.ratio, samples = excluded.samples,
        learned_window = excluded.learned_window, updated_at = now()
""")


class CalibrationRepository:
    """Storage of calibrations; implements the interface CalibrationStore (ports/storage.py)."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def load(self, model: str) -> Calibration | None:
        """Return the model's calibration, None if the model was never called."""
        rows = await self._transactions.fetch(_LOAD, model=model)
        return Calibration(**rows[0]) if rows else None

    async def save(self, model: str, calibration: Calibration) -> None:
        """Store the model's calibration; the last writer wins."""
        await self._transactions.fetch(
            _SAVE,
            model=model,
            ratio=calibration.ratio,
            samples=calibration.samples,
            learned_window=calibration.learned_window,
        )
