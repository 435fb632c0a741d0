"""Access tokens: created by API keys, shown once, stored as a hash, valid until they expire or their key is revoked."""

import secrets
from collections.abc import Collection

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Transactions
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.sql import sql
from throughline.db.users.keys import SECRET_BYTES, hash_secret
from throughline.domain.ids import KeyId, SessionId, UserId
from throughline.domain.keys import TOKEN_PREFIX, CreatedToken, NewToken, PresentedToken, Principal, Scope, TokenLimits

_CREATE = sql("""
    insert into access_tokens (id, key_id, user_id, secret_hash, scopes, session_ids, expires_at)
    values (:id, :key_id, :user_id, :secret_hash, cast(:scopes as text[]), cast(:session_ids as uuid[]),
        now() + make_interval(secs => :lifetime_seconds))
    on conflict (id) do update set id = excluded.id returning expires_at
""")
_AUTHENTICATE = sql("""
    select t.user_id, u.name as user_name, t.scopes, t.session_ids, t.expires_at, t.key_id,
        case when k.user_id <> t.user_id then k.name end as actor,
        cast(extract(epoch from t.expires_at - now()) as double precision) as seconds_left
    from access_tokens t join api_keys k on k.id = t.key_id join users u on u.id = t.user_id
    where t.secret_hash = :secret_hash and k.revoked_at is null
""")
_OWNED = sql("select id from sessions where owner_id = :owner_id and id = any(cast(:session_ids as uuid[]))")


class AccessTokenRepository:
    """Storage of access tokens: creation and check."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def create(self, new: NewToken) -> CreatedToken:
        """Create a token `tlt_<43 characters>` and return it with its secret, which is not stored."""
        secret = f"{TOKEN_PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}"
        rows = await self._transactions.fetch(
            _CREATE,
            id=new_id(),
            key_id=new.key_id,
            user_id=new.user_id,
            secret_hash=hash_secret(secret),
            scopes=sorted(scope.value for scope in new.scopes),
            session_ids=None if new.session_ids is None else sorted(new.session_ids),
            lifetime_seconds=new.lifetime_seconds,
        )
        return CreatedToken(secret, rows[0]["expires_at"])

    async def authenticate(self, secret: str) -> PresentedToken | None:
        """Return the token with this secret, which may have expired; None if it is unknown or its key is revoked."""
        rows = await self._transactions.fetch(_AUTHENTICATE, secret_hash=hash_secret(secret))
        return _token_from(rows[0]) if rows else None

    async def find_owned(self, owner_id: UserId, session_ids: Collection[SessionId]) -> frozenset[SessionId]:
        """Return those of the sessions that the user owns."""
        rows = await self._transactions.fetch(_OWNED, owner_id=owner_id, session_ids=list(session_ids))
        return frozenset(SessionId(row["id"]) for row in rows)


def _token_from(row: Row) -> PresentedToken:
    session_ids = row["session_ids"]
    principal = Principal(
        user_id=UserId(row["user_id"]),
        user_name=row["user_name"],
        scopes=frozenset(Scope(scope) for scope in row["scopes"]),
        actor=row["actor"],
        key_id=KeyId(row["key_id"]),
        limits=TokenLimits(None if session_ids is None else frozenset(map(SessionId, session_ids))),
    )
    return PresentedToken(principal, row["expires_at"], row["seconds_left"])
