"""Who may read a session, and write to it, beside its owner: those who took part in it in a Slack channel."""

from app.db.connection.transactions import Transactions
from app.db.statements.sql import sql
from app.domain.ids import RunId, SessionId, UserId

_ANY = sql("select exists (select 1 from session_participants) as is_any")
_OWNER_FOR = sql("""
    select s.owner_id from sessions s join session_participants p on p.session_id = s.id and p.user_id = :user_id
    where s.id = cast(:session_id as uuid)
        or s.id = (select r.session_id from runs r where r.id = cast(:run_id as uuid))
""")


class ParticipantRepository:
    """Looks participants up; they come into being with the messages they write."""

    def __init__(self, transactions: Transactions) -> None:
        """Read through `transactions`."""
        self._transactions = transactions

    async def any_exists(self) -> bool:
        """Whether any session has participants."""
        return bool((await self._transactions.fetch(_ANY))[0]["is_any"])

    async def owner_for(
        self, user_id: UserId, *, session_id: SessionId | None = None, run_id: RunId | None = None
    ) -> UserId | None:
        """Return the owner in whose name a participant may reach the session, None for everybody else."""
        rows = await self._transactions.fetch(_OWNER_FOR, user_id=user_id, session_id=session_id, run_id=run_id)
        return UserId(rows[0]["owner_id"]) if rows else None
