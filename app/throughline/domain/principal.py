"""The requester: the user whose data is accessed, and the actor who acts for that user."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import UserId


class Scope(StrEnum):
    """The permissions of an API key.

    `ACT_AS` lets the key act for the user that `On-Behalf-Of` names. `OPERATE` shows what providers of models said
    about failed calls, and what the calls of all users cost.
    """

    READ = "read"
    WRITE = "write"
    ACT_AS = "act_as"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class Principal:
    """The user whose data a request may access. `actor` names the API key that acts for the user, if there is one."""

    user_id: UserId
    user_name: str
    scopes: frozenset[Scope]
    actor: str | None = None
