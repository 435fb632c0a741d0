"""API keys as values: a key to create, a key just created, and a stored key."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from throughline.domain.basic_types import KeyId, SessionId, UserId


@dataclass(frozen=True, slots=True)
class ErasedUser:
    """An erased user, with the number of rows of each kind that went with them.

    `keys` are API keys, revoked ones too. `slack_people` are the people in Slack that were linked to the user.
    `model_calls` are records of what was paid for the user, which stay without the user if `keeps_costs`.
    `shared_sessions` are sessions of other owners in which these people could write; what they wrote there stays.
    """

    name: str
    sessions: int
    messages: int
    runs: int
    memories: int
    keys: int
    access_tokens: int
    slack_people: int
    model_calls: int
    keeps_costs: bool
    shared_sessions: tuple[SessionId, ...]


class Scope(StrEnum):
    """The permissions of an API key.

    `ACT_AS` lets the key act for the user that `On-Behalf-Of` names. `OPERATE` shows what providers of models said
    about failed calls, what the calls of all users cost, and serves the routes for operators.
    """

    READ = "read"
    WRITE = "write"
    ACT_AS = "act_as"
    OPERATE = "operate"


TOKEN_SCOPES = (Scope.READ, Scope.WRITE)
"""The scopes that an access token may have."""

SIGN_IN_SCOPES = (*TOKEN_SCOPES, Scope.OPERATE)
"""The scopes that a person who signs in with a key keeps: a browser acts for the key's own user only."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What an access token may reach: the sessions with these ids; all sessions of its user if that is None."""

    session_ids: frozenset[SessionId] | None


@dataclass(frozen=True, slots=True)
class Principal:
    """The user whose data a request may access.

    `actor` names the API key that acts for the user, if there is one. `key_id` is the key that was sent, or that made
    the access token; None without a key. `limits` are those of an access token, None if no token was sent.
    """

    user_id: UserId
    user_name: str
    scopes: frozenset[Scope]
    actor: str | None = None
    key_id: KeyId | None = None
    limits: TokenLimits | None = None


TOKEN_PREFIX = "tlt_"  # noqa: S105  # marks a token, is none
"""Beginning of every access token, and of no API key."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token to create: its key, its user, what it may do, the sessions (None: all), and its lifetime in seconds.

    With `is_sign_in` it is a browser's for its user's own pages, and reaches whatever the key does.
    """

    key_id: KeyId
    user_id: UserId
    scopes: frozenset[Scope]
    session_ids: frozenset[SessionId] | None
    lifetime_seconds: int
    is_sign_in: bool = False


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A token that was just created. Its `secret` is available only here, since only a hash is stored."""

    secret: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A stored token whose secret the caller presented. `seconds_left` is 0 or less once it has expired.

    The principal of a sign-in has no limits.
    """

    principal: Principal
    expires_at: datetime
    seconds_left: float


KEY_START = "tl_"
"""Beginning of every API key. A local service takes anything else for no key: OpenAI's clients must send one."""

PREFIX_LENGTH = 8
"""Length of a generated key's prefix, the characters after `tl_`. It is displayed to tell keys apart."""


def prefix_of(key: str) -> str:
    """Return the prefix of a key, which may be given whole (`tl_<prefix>_<secret>`). An id stays unchanged."""
    return key.removeprefix(KEY_START).partition("_")[0]


DEFAULT_SCOPES = (Scope.READ, Scope.WRITE)
"""The scopes of a new key for which none are named."""


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
class ApiKey:
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
