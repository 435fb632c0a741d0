"""JSON shapes of runs and of the answer to a sent message."""

from typing import Annotated

from pydantic import Field

from throughline.domain.message import Source
from throughline.domain.run import Run, RunStatus
from throughline.domain.tool import WaitKind
from throughline.wire.context import ContextOut
from throughline.wire.json_shape import Id, JsonDict, Shape, Time, one_of
from throughline.wire.messages import MessageOut
from throughline.wire.service import UsageOut


class ErrorOut(Shape):
    """Why a run failed."""

    type: str
    detail: str


class ErrorForOperators(ErrorOut):
    """Why a run failed, as keys with the scope `operate` read it."""

    provider_message: str = Field("", description="what the model's provider itself said; empty if it said nothing")


class WaitingCall(Shape):
    """A tool call that waits for something from outside."""

    id: str = Field(description="id of the tool call")
    name: str
    arguments: str = Field(description="the JSON text that the model wrote")
    kind: Annotated[str, one_of(*WaitKind)]


class WaitingFor(Shape):
    """What a waiting run waits for: its calls that were given nothing yet."""

    calls: list[WaitingCall]
    until: Time = Field(description="when the run goes on without what is missing then")


class RunOut(Shape):
    """A run: one user message and all steps until its answer."""

    id: Id
    session_id: Id
    status: Annotated[str, one_of(*RunStatus)]
    source: Annotated[str, one_of(*Source)]
    author: str | None
    actor: str | None = Field(description="the key that acted for the author")
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    attempt: int
    cancel_requested: bool
    usage: UsageOut
    error: ErrorOut | None
    user_message_id: Id = Field(description="the user's message, once it is stored")
    message_id: Id | None = Field(description="the answer")
    waiting_for: WaitingFor | None = Field(None, description="set while the status is `waiting`")


class RunForOperators(RunOut):
    """A run, as keys with the scope `operate` read it."""

    error: ErrorForOperators | None


class RunPage(Shape):
    """A page of a session's runs, the last submitted first."""

    data: list[RunForOperators | RunOut]
    next_cursor: str | None = Field(description="send it as `cursor` for the next page; null on the last page")


def run_json(run: Run, *, for_operator: bool) -> JsonDict:
    """Return the run as JSON. What the model's provider said about a failure is included only if `for_operator`."""
    return (RunForOperators if for_operator else RunOut).render(run)


class Accepted(Shape):
    """A run that was accepted, or found by its idempotency key."""

    run: RunOut


class TurnOut(Shape):
    """A finished turn: the answer, and how full the context is now. A waiting turn has neither yet."""

    run: RunOut
    message: MessageOut | None
    context: ContextOut | None
