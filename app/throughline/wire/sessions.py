"""Sessions, and the versions of their summaries."""

from typing import Annotated

from pydantic import Field, JsonValue

from throughline.domain.message import Source
from throughline.domain.session import Session
from throughline.domain.summary import SummaryState, SummaryVersion
from throughline.wire.shape import JsonDict, Shape, Time, one_of


class SessionOut(Shape):
    """A session."""

    id: str
    agent: str
    title: str
    source: Annotated[str, one_of(*Source)]
    message_count: int
    summarized_count: int = Field(description="messages the summary stands for")
    created_at: Time
    updated_at: Time
    metadata: dict[str, JsonValue]
    archived: bool


class SessionPage(Shape):
    """Sessions, newest first."""

    data: list[SessionOut]
    next_cursor: str | None


class SummaryVersionOut(Shape):
    """A version of a session's summary. A prepared one is written and not yet used; its number comes with that."""

    id: str
    version: int | None
    state: Annotated[str, one_of(*SummaryState)]
    text: str = Field(description="as the model gets it, the ledger included")
    stretches: int = Field(description="of how many stretches the text is made")
    token_count: int
    through_id: str | None
    through_position: int
    model: str
    created_at: Time


class SummaryList(Shape):
    """Versions, newest first."""

    data: list[SummaryVersionOut]
    next_cursor: str | None


class SummarizeOut(Shape):
    """What a forced summary came to."""

    outcome: Annotated[str, one_of("adopted", "skipped", "failed", "cancelled")] = Field(
        description="skipped: not worth it, or another was first; cancelled: by the agent's hook"
    )
    detail: str
    tokens_before: int
    tokens_after: int
    session: SessionOut


def session_json(session: Session) -> JsonDict:
    """Return a session as a `SessionOut`."""
    return {
        "id": str(session.id),
        "agent": session.agent,
        "title": session.title,
        "source": session.source.value,
        "message_count": session.message_count,
        "summarized_count": session.summary_through_position,
        "created_at": session.created_at.isoformat(),
        "updated_at": session.updated_at.isoformat(),
        "metadata": dict(session.metadata),
        "archived": session.archived,
    }


def summary_version_json(version: SummaryVersion) -> JsonDict:
    """Return a version of a summary as a `SummaryVersionOut`."""
    return {
        "id": str(version.id),
        "version": version.version,
        "state": version.state.value,
        "text": version.text,
        "stretches": len(version.stretch_ids),
        "token_count": version.token_count,
        "through_id": None if version.through_id is None else str(version.through_id),
        "through_position": version.through_position,
        "model": version.model,
        "created_at": version.created_at.isoformat(),
    }
