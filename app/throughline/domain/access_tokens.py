"""Access tokens as values: short-lived tokens that an API key makes for one user, for use in browsers."""

from dataclasses import dataclass, field
from datetime import datetime

from throughline.domain.ids import KeyId, SessionId, UserId
from throughline.domain.principal import Principal, Scope

TOKEN_PREFIX = "tlt_"  # noqa: S105  # marks a token, is none
"""Beginning of every access token, and of no API key."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to create: its key, its user, what it may do, the sessions (None: all), and its lifetime in seconds."""

    key_id: KeyId
    user_id: UserId
    scopes: frozenset[Scope]
    session_ids: frozenset[SessionId] | None
    lifetime_seconds: int


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A token that was just created. Its `secret` is available only here, since only a hash is stored."""

    secret: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A stored token whose secret the caller presented. `seconds_left` is 0 or less once it has expired."""

    principal: Principal
    expires_at: datetime
    seconds_left: float
