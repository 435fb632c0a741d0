"""JSON shape of the report on an erased user."""

from pydantic import Field

from throughline.wire.json_shape import Id, Shape


class ErasedUserOut(Shape):
    """What went with an erased user: numbers of rows, and what stays elsewhere."""

    name: str
    sessions: int
    messages: int
    runs: int
    memories: int
    keys: int = Field(description="API keys, revoked ones too")
    access_tokens: int
    slack_people: int = Field(description="people in Slack that were linked to the user")
    model_calls: int = Field(description="records of what was paid for the user")
    keeps_costs: bool = Field(description="true: these records stay, without user, session and run")
    shared_sessions: list[Id] = Field(
        description="sessions of other owners in which these people in Slack could write; what they wrote there stays"
    )
