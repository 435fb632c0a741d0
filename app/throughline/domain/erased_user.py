"""What the erasure of a user has removed, and what it has left."""

from dataclasses import dataclass

from throughline.domain.ids import SessionId


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
