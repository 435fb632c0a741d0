"""The requester: the user whose data is accessed, and the actor who acts for that user."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import KeyId, SessionId, UserId


class Scope(StrEnum):
    """The permissions of an API key.

    `ACT_AS` lets the key act for the user that `On-Behalf-Of` names. `OPERATE` shows what providers of models said
    about failed calls, and what the calls of all users cost.
    """

    READ = "read"
    WRITE = "write"
    ACT_AS = "act_as"
    OPERATE = "operate"


TOKEN_SCOPES = (Scope.READ, Scope.WRITE)
"""The scopes that an access token may have."""


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
