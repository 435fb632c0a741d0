"""API keys as values: a key to create, a key just created, and a stored key."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from throughline.domain.ids import KeyId, UserId
from throughline.domain.principal import Scope

KEY_START = "tl_"
"""Beginning of every API key. A local service takes anything else for no key: OpenAI's clients must send one."""

PREFIX_LENGTH = 8
"""Length of a generated key's prefix, the characters after `tl_`. It is displayed to tell keys apart."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to create: the user whose data it gives access to, its name, and its scopes."""

    user_name: str
    name: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A key that was just created. Its `secret` is available only here, since only a hash is stored."""

    id: KeyId
    secret: str
    prefix: str


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A stored API key, without its secret."""

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
"""A valid key whose secret the caller presented."""
