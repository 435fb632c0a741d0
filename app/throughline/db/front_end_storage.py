"""What the storage has to know of the tables that a front end brings with it.

`assembly/front_ends.py` collects the values. Retention, the erasure of users, shared sessions and the service's state
use them, so that none of these names a front end's table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from throughline.db.connection.pool import Statement
from throughline.db.connection.transactions import Transactions
from throughline.domain.basic_types import RunId, SessionId, UserId


@dataclass(frozen=True, slots=True)
class ExpiringRows:
    """Rows that `batch`, made by `delete_batch` of `retention.py`, deletes or clears once they are `hours` old."""

    hours: int
    batch: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndStorage:
    """What a front end stores of its own.

    - `expiring`: rows that retention deletes, by kind.
    - `erased`: statements that delete rows of the user `:id`, each with the count of the report that it adds to, or ''.
    - `shared_with`: query of the `session_id` of other owners' sessions in which the user `:id` takes part.
    - `is_any_shared`: query of whether any session `is_shared`.
    - `owner_for`: query of the `owner_id` of the session `:session_id`, or of the run `:run_id`, if the user `:user_id`
      takes part in it.
    - `deliveries`: query of the waiting deliveries, a row as for a kind of jobs; no row if the front end is not used.
    """

    expiring: Mapping[str, ExpiringRows]
    erased: Sequence[tuple[str, Statement]]
    shared_with: Statement
    is_any_shared: Statement
    owner_for: Statement
    deliveries: Statement


class ParticipantRepository:
    """Lookup of participants: people besides the owner who may read a session and write to it."""

    def __init__(self, transactions: Transactions, front_ends: Sequence[FrontEndStorage]) -> None:
        self._transactions = transactions
        self._front_ends = front_ends

    async def any_exists(self) -> bool:
        for each in self._front_ends:
            if (await self._transactions.fetch(each.is_any_shared))[0]["is_shared"]:
                return True
        return False

    async def owner_for(
        self, user_id: UserId, *, session_id: SessionId | None = None, run_id: RunId | None = None
    ) -> UserId | None:
        """Return the owner on whose behalf a participant may access the session, None if the user is no participant."""
        for each in self._front_ends:
            rows = await self._transactions.fetch(each.owner_for, user_id=user_id, session_id=session_id, run_id=run_id)
            if rows:
                return UserId(rows[0]["owner_id"])
        return None
