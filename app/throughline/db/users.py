"""API keys: created once, shown once, stored as a hash, revoked permanently."""

import hashlib
import secrets
import string
from collections.abc import Collection

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Repository, Transactions
from throughline.db.statements.rows import fields_from
from throughline.db.statements.sql import new_id, sql
from throughline.domain.basic_types import KeyId, SessionId, UserId
from throughline.domain.errors import InvalidInput
from throughline.domain.keys import (
    PREFIX_LENGTH,
    TOKEN_PREFIX,
    ApiKey,
    CreatedKey,
    CreatedToken,
    NewKey,
    NewToken,
    PresentedToken,
    Principal,
    Scope,
    TokenLimits,
)
from throughline.domain.message import clean_text, is_blank

MAX_NAME_LENGTH = 200
_FIND = sql("select id from users where name = :name")
_CREATE_USER = sql("insert into users (id, name) values (:id, :name) on conflict (name) do nothing returning id")


class UserRepository(Repository):
    """Storage of users: lookup by name, and creation."""

    async def get(self, name: str) -> UserId | None:
        """Return the user's id, None if there is no user with this name."""
        rows = await self._transactions.fetch(_FIND, name=name)
        return UserId(rows[0]["id"]) if rows else None

    async def get_or_create(self, name: str) -> UserId:
        """Return the id of the user with this name, created if missing. Raises InvalidInput for an invalid name."""
        if not 0 < len(name) <= MAX_NAME_LENGTH:
            raise InvalidInput(f"A user's name has 1 to {MAX_NAME_LENGTH} characters, not {len(name)}.", field="user")
        if is_blank(name) or clean_text(name) != name:
            raise InvalidInput(
                f"A user's name must not be blank, and must not hold NUL or lone surrogates, not {name!a}.",
                field="user",
            )
        found = await self.get(name)
        while found is None:
            rows = await self._transactions.fetch(_CREATE_USER, id=new_id(), name=name)
            found = UserId(rows[0]["id"]) if rows else await self.get(name)
        return found


SECRET_BYTES = 32
_ALPHABET = string.ascii_lowercase + string.digits

_COLUMNS = (
    "k.id, k.user_id, u.name as user_name, k.name, k.prefix, k.scopes, k.created_at, k.last_used_at, k.revoked_at"
)
_CREATE = sql("""
    insert into api_keys (id, user_id, name, prefix, secret_hash, scopes)
    values (:id, :user_id, :name, :prefix, :secret_hash, cast(:scopes as text[]))
    on conflict (secret_hash) do nothing
""")
_LIST = sql(
    "select {columns} from api_keys k join users u on u.id = k.user_id order by k.created_at, k.id", columns=_COLUMNS
)
_ANY = sql("select exists(select 1 from api_keys) as found")
_REVOKE = sql(
    """
    update api_keys k set revoked_at = now() from users u
    where u.id = k.user_id and (k.prefix = :key or cast(k.id as text) = :key) and k.revoked_at is null
    returning {columns}
""",
    columns=_COLUMNS,
)
_AUTHENTICATE = sql(
    """
    with found as (
        select {columns} from api_keys k join users u on u.id = k.user_id
        where k.secret_hash = :secret_hash and k.revoked_at is null
    ), touched as (
        update api_keys k set last_used_at = now() from found
        where k.id = found.id and (k.last_used_at is null or k.last_used_at < now() - interval '1 minute')
    )
    select * from found
""",
    columns=_COLUMNS,
)


class KeyRepository:
    """Storage of API keys: creation, check and revocation."""

    def __init__(self, transactions: Transactions, users: UserRepository) -> None:
        """Use `transactions`; get or create the users of new keys through `users`."""
        self._transactions = transactions
        self._users = users

    async def create(self, new: NewKey) -> CreatedKey:
        """Create a key `tl_<prefix>_<43 characters>` for the user, who is created if missing.

        Return it with its secret, which is not stored.
        """
        prefix = "".join(secrets.choice(_ALPHABET) for _ in range(PREFIX_LENGTH))
        secret = f"tl_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"
        key_id = await self._store(new, secret, prefix)
        return CreatedKey(id=key_id, secret=secret, prefix=prefix)

    async def ensure(self, secret: str, user_name: str, scopes: frozenset[Scope]) -> None:
        """Create a key with this secret if there is none. A revoked key stays revoked."""
        new = NewKey(user_name=user_name, name="bootstrap", scopes=scopes)
        await self._store(new, secret, f"boot-{hash_secret(secret).hex()[:PREFIX_LENGTH]}")

    async def authenticate(self, secret: str) -> ApiKey | None:
        """Return the valid key with this secret, None if there is none; record its use at most once a minute."""
        rows = await self._transactions.fetch(_AUTHENTICATE, secret_hash=hash_secret(secret))
        return _key_from(rows[0]) if rows else None

    async def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, oldest first, including revoked ones."""
        return tuple(_key_from(row) for row in await self._transactions.fetch(_LIST))

    async def revoke(self, prefix_or_id: str) -> ApiKey | None:
        """Revoke a key and return it; None if no valid key has this prefix or id."""
        rows = await self._transactions.fetch(_REVOKE, key=prefix_or_id)
        return _key_from(rows[0]) if rows else None

    async def any_exists(self) -> bool:
        """Whether a key was ever created. Revoking the last one must not open the service to everybody."""
        return bool((await self._transactions.fetch(_ANY))[0]["found"])

    async def _store(self, new: NewKey, secret: str, prefix: str) -> KeyId:
        key_id = new_id()
        await self._transactions.fetch(
            _CREATE,
            id=key_id,
            user_id=await self._users.get_or_create(new.user_name),
            name=new.name,
            prefix=prefix,
            secret_hash=hash_secret(secret),
            scopes=sorted(scope.value for scope in new.scopes),
        )
        return KeyId(key_id)


def hash_secret(secret: str) -> bytes:
    """Return the secret's SHA-256. A plain hash suffices, since a secret has 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _key_from(row: Row) -> ApiKey:
    values = fields_from(ApiKey, row)
    return ApiKey(**{**values, "scopes": frozenset(Scope(scope) for scope in values["scopes"])})


_CREATE_TOKEN = sql("""
    insert into access_tokens (id, key_id, user_id, secret_hash, scopes, session_ids, is_sign_in, expires_at)
    values (:id, :key_id, :user_id, :secret_hash, cast(:scopes as text[]), cast(:session_ids as uuid[]), :is_sign_in,
        now() + make_interval(secs => :lifetime_seconds))
    on conflict (id) do update set id = excluded.id returning expires_at
""")
_AUTHENTICATE_TOKEN = sql("""
    select t.user_id, u.name as user_name, t.scopes, t.session_ids, t.is_sign_in, t.expires_at, t.key_id,
        case when k.user_id <> t.user_id then k.name end as actor,
        cast(extract(epoch from t.expires_at - now()) as double precision) as seconds_left
    from access_tokens t join api_keys k on k.id = t.key_id join users u on u.id = t.user_id
    where t.secret_hash = :secret_hash and k.revoked_at is null
""")
_DELETE_SIGN_IN = sql("delete from access_tokens where secret_hash = :secret_hash and is_sign_in returning id")
_OWNED = sql("select id from sessions where owner_id = :owner_id and id = any(cast(:session_ids as uuid[]))")


class AccessTokenRepository(Repository):
    """Storage of access tokens and sign-ins: creation, check and end."""

    async def create(self, new: NewToken) -> CreatedToken:
        """Create a token `tlt_<43 characters>` and return it with its secret, which is not stored."""
        secret = f"{TOKEN_PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}"
        rows = await self._transactions.fetch(
            _CREATE_TOKEN,
            id=new_id(),
            key_id=new.key_id,
            user_id=new.user_id,
            secret_hash=hash_secret(secret),
            scopes=sorted(scope.value for scope in new.scopes),
            session_ids=None if new.session_ids is None else sorted(new.session_ids),
            is_sign_in=new.is_sign_in,
            lifetime_seconds=new.lifetime_seconds,
        )
        return CreatedToken(secret, rows[0]["expires_at"])

    async def authenticate(self, secret: str) -> PresentedToken | None:
        """Return the token with this secret, which may have expired; None if it is unknown or its key is revoked."""
        rows = await self._transactions.fetch(_AUTHENTICATE_TOKEN, secret_hash=hash_secret(secret))
        return _token_from(rows[0]) if rows else None

    async def delete_sign_in(self, secret: str) -> bool:
        """Delete the sign-in with this secret; other tokens stay. Return whether there was one."""
        return bool(await self._transactions.fetch(_DELETE_SIGN_IN, secret_hash=hash_secret(secret)))

    async def find_owned(self, owner_id: UserId, session_ids: Collection[SessionId]) -> frozenset[SessionId]:
        """Return those of the sessions that the user owns."""
        rows = await self._transactions.fetch(_OWNED, owner_id=owner_id, session_ids=list(session_ids))
        return frozenset(SessionId(row["id"]) for row in rows)


def _token_from(row: Row) -> PresentedToken:
    session_ids = row["session_ids"]
    limits = TokenLimits(None if session_ids is None else frozenset(map(SessionId, session_ids)))
    principal = Principal(
        user_id=UserId(row["user_id"]),
        user_name=row["user_name"],
        scopes=frozenset(Scope(scope) for scope in row["scopes"]),
        actor=row["actor"],
        key_id=KeyId(row["key_id"]),
        limits=None if row["is_sign_in"] else limits,
    )
    return PresentedToken(principal, row["expires_at"], row["seconds_left"])
