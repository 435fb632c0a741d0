"""Runs, and what a finished turn answers."""

from typing import Annotated

from pydantic import Field

from throughline.domain.message import Source
from throughline.domain.run import Run, RunStatus
from throughline.wire.context import ContextOut
from throughline.wire.messages import MessageOut
from throughline.wire.shape import JsonDict, Shape, Time, one_of, time_json


class UsageOut(Shape):
    """Tokens as the provider reported them."""

    input_tokens: int | None
    output_tokens: int | None


class ErrorOut(Shape):
    """Why a run failed."""

    type: str
    detail: str


class RunOut(Shape):
    """A run: one user message and what follows until the answer."""

    id: str
    session_id: str
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
    message_id: str | None = Field(description="the answer")


class Accepted(Shape):
    """A run that was accepted, or that was found."""

    run: RunOut


class TurnOut(Shape):
    """A finished turn: the answer, and how full the context is now."""

    run: RunOut
    message: MessageOut | None
    context: ContextOut | None


def run_json(run: Run) -> JsonDict:
    """Return a run as a `RunOut`; its input is not part of it, the stored user message is."""
    return {
        "id": str(run.id),
        "session_id": str(run.session_id),
        "status": run.status.value,
        "source": run.source.value,
        "author": run.author,
        "actor": run.actor,
        "created_at": run.created_at.isoformat(),
        "started_at": time_json(run.started_at),
        "finished_at": time_json(run.finished_at),
        "attempt": run.attempt,
        "cancel_requested": run.cancel_requested,
        "usage": {"input_tokens": run.usage.input_tokens, "output_tokens": run.usage.output_tokens},
        "error": None if run.error is None else {"type": run.error.type, "detail": run.error.detail},
        "message_id": None if run.message_id is None else str(run.message_id),
    }
