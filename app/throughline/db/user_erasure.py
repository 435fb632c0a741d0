"""Erasure of a user with everything that is stored for them, and the report of what went.

First the user's keys are revoked, so that nothing new is stored. Then each session is erased in a transaction of its
own, and at last everything else with the user. An erasure that was interrupted is continued by repeating it.
"""

from collections import Counter
from collections.abc import Sequence

from throughline.db.connection.notifier import Notifier
from throughline.db.connection.transactions import Statements, Transactions
from throughline.db.front_end_storage import FrontEndStorage
from throughline.db.sessions.erasure import ErasureReach, erase_session
from throughline.db.sessions.message_cache import MessageCache
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import RunId, SessionId, UserId
from throughline.domain.errors import NotFound
from throughline.domain.keys import ErasedUser

SESSIONS_AT_ONCE = 100
CALLS_AT_ONCE = 10_000
COUNTED = ("sessions", "messages", "runs", "memories", "keys", "access_tokens", "slack_people", "model_calls")
"""The kinds of rows that a report counts."""

_FIND = sql("select id from users where name = :name")
_REVOKE = (
    ("keys", sql("update api_keys set revoked_at = coalesce(revoked_at, now()) where user_id = :id returning id")),
    ("access_tokens", sql("delete from access_tokens where user_id = :id returning id")),
)
_SESSIONS = sql("select id, message_count from sessions where owner_id = :id order by id limit :limit")
_RUNS = sql("select count(*) as runs from runs where session_id = :session_id")
_LOCK = sql("select id from users where id = :id for update")
_DELETE = (
    ("access_tokens", sql("delete from access_tokens where user_id = :id returning id")),
    ("memories", sql("delete from memories where user_id = :id returning id")),
    ("", sql("delete from jobs where owner_id = :id")),
    # A row stays: a service whose only key has gone must not be open to everybody.
    (
        "",
        sql("""
            update api_keys set user_id = null, name = '', revoked_at = coalesce(revoked_at, now())
            where user_id = :id
        """),
    ),
)
_COSTS = "select c.id from model_calls c where c.owner_id = :id limit :limit"
_KEEP_COSTS = sql(
    "update model_calls set owner_id = null, session_id = null, run_id = null where id in ({costs}) returning id",
    costs=_COSTS,
)
_DELETE_COSTS = sql("delete from model_calls where id in ({costs}) returning id", costs=_COSTS)
_DELETE_USER = sql("delete from users where id = :id")


class UserErasure:
    """Deletion of users with all their rows, one session at a time; the user's own row goes last."""

    def __init__(
        self,
        transactions: Transactions,
        notifier: Notifier,
        loaded: MessageCache,
        front_ends: Sequence[FrontEndStorage],
        *,
        keeps_costs: bool,
    ) -> None:
        """Use `transactions`; stop turns through `notifier`; remove erased rows from the cache `loaded`.

        `front_ends` names the user's rows in their tables. With `keeps_costs` the records of model calls stay, without
        the user, the session and the run.
        """
        self._transactions = transactions
        self._notifier = notifier
        self._loaded = loaded
        self._front_ends = front_ends
        self._delete = (*_DELETE, *(statement for each in front_ends for statement in each.erased))
        self._keeps_costs = keeps_costs
        self._erase_costs = _KEEP_COSTS if keeps_costs else _DELETE_COSTS

    async def erase(self, name: str) -> ErasedUser:
        """Erase the user and return what went. Raises NotFound."""
        found = await self._transactions.fetch(_FIND, name=name)
        if not found:
            raise NotFound(f"There is no user {name!r}.")
        user_id = UserId(found[0]["id"])
        gone: Counter[str] = Counter()
        for kind, statement in _REVOKE:
            gone[kind] += len(await self._transactions.fetch(statement, id=user_id))
        while sessions := await self._transactions.fetch(_SESSIONS, id=user_id, limit=SESSIONS_AT_ONCE):
            for row in sessions:
                gone += await self._erase_session(user_id, SessionId(row["id"]), row["message_count"])
        while calls := await self._transactions.fetch(self._erase_costs, id=user_id, limit=CALLS_AT_ONCE):
            gone["model_calls"] += len(calls)
        rest, shared = await self._transactions.run(lambda tx: self._erase_rest(tx, user_id))
        gone += rest
        counts = {kind: gone[kind] for kind in COUNTED}
        return ErasedUser(name=name, **counts, keeps_costs=self._keeps_costs, shared_sessions=tuple(shared))

    async def _erase_session(self, user_id: UserId, session_id: SessionId, messages: int) -> Counter[str]:
        """Erase one session and stop its turns; return how many rows went, none if it is gone already."""

        async def erased(tx: Statements) -> tuple[int, Sequence[RunId]]:
            runs = await tx.fetch(_RUNS, session_id=session_id)
            ended = await erase_session(tx, user_id, session_id, ErasureReach.SESSION)
            return int(runs[0]["runs"]), ended.run_ids

        try:
            runs, stopped = await self._transactions.run(erased)
        except NotFound:
            return Counter()
        self._loaded.forget(session_id)
        for run_id in stopped:
            self._notifier.announce_cancel(run_id)
            self._notifier.announce_events(run_id)
        if stopped:
            self._notifier.announce_work()  # runs of others may start now
        return Counter(sessions=1, messages=messages, runs=runs)

    async def _erase_rest(self, tx: Statements, user_id: UserId) -> tuple[Counter[str], list[SessionId]]:
        """Delete everything but sessions, and the user; return what went, and the sessions of others.

        The lock on the user keeps new sessions out. What was stored since the last was erased goes with the rest.
        """
        await tx.fetch(_LOCK, id=user_id)
        gone: Counter[str] = Counter()
        while sessions := await tx.fetch(_SESSIONS, id=user_id, limit=SESSIONS_AT_ONCE):
            for row in sessions:
                await erase_session(tx, user_id, SessionId(row["id"]), ErasureReach.SESSION)
                gone += Counter(sessions=1, messages=row["message_count"])
        found = [row for each in self._front_ends for row in await tx.fetch(each.shared_with, id=user_id)]
        shared = [SessionId(row["session_id"]) for row in found]
        for kind, statement in self._delete:
            gone[kind] += len(await tx.fetch(statement, id=user_id))
        gone["model_calls"] += len(await tx.fetch(self._erase_costs, id=user_id, limit=CALLS_AT_ONCE))
        await tx.fetch(_DELETE_USER, id=user_id)
        return gone, shared
