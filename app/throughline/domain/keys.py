"""API keys as values: one to be made, one just made, one as stored."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from throughline.domain.ids import KeyId, UserId
from throughline.domain.principal import Scope

PREFIX_LENGTH = 8
"""Characters of a key that are shown, by which people tell keys apart."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be made: whose data it reaches, what it is called, what it may do."""

    user_name: str
    name: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A key just made. `secret` is known only now."""

    id: KeyId
    secret: str
    prefix: str


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as stored, without its secret."""

    id: KeyId
    user_id: UserId
    user_name: str
    name: str
    prefix: str
    scopes: frozenset[Scope]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


AuthenticatedKey: TypeAlias = StoredKey
"""A key in force whose secret was shown to us."""
