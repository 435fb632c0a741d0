"""Who is asking: the user whose data is touched, and the actor who acts for that user."""

from dataclasses import dataclass
from enum import StrEnum

from throughline.domain.ids import UserId


class Scope(StrEnum):
    """What an API key may do."""

    READ = "read"
    WRITE = "write"
    ACT_AS = "act_as"


@dataclass(frozen=True, slots=True)
class Principal:
    """The user whose data a request may reach. `actor` names the key that acts for the user, if one does."""

    user_id: UserId
    user_name: str
    scopes: frozenset[Scope]
    actor: str | None = None
