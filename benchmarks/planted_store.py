"""One session's segments and its adopted summary, kept in memory: where a measure without a database has them."""

from dataclasses import fields, replace
from uuid import UUID

from benchmarks.replay_data import Json
from throughline.domain.basic_types import SegmentId, SessionId, SummaryId
from throughline.domain.errors import SummaryConflict
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import (
    Adoption,
    NewSegment,
    Segment,
    SummaryState,
    SummaryVersion,
    SummaryWithSegments,
    WantedSegment,
)

_STORED = frozenset(field.name for field in fields(Segment)) - {"id"}
_VERSIONED = frozenset(field.name for field in fields(SummaryVersion))


class KeptSummaries:
    """As much of a SummaryStore as summaries need that are written when they are due, one after the other."""

    def __init__(self, session: Session) -> None:
        """Begin without a summary."""
        self.session = session
        self.segments: dict[str, Segment] = {}
        self._adopted: SummaryVersion | None = None

    async def find_segment(self, session_id: SessionId, read_hash: str) -> Segment | None:
        """Return the segment that was made from exactly this."""
        del session_id
        return self.segments.get(read_hash)

    async def save_segment(self, session_id: SessionId, segment: NewSegment, lease: Lease | None = None) -> Segment:
        """Keep a segment, as it is found again by its hash."""
        del session_id, lease
        stored = {name: getattr(segment, name) for name in _STORED}
        new = Segment(id=SegmentId(UUID(int=len(self.segments) + 1)), **stored)
        return self.segments.setdefault(segment.read_hash, new)

    async def copy_segment(
        self, session_id: SessionId, wanted: WantedSegment, lease: Lease | None = None
    ) -> Segment | None:
        """There is no other session."""
        del session_id, wanted, lease
        return None  # the one answer of several that the protocol knows

    async def load_parts(self, session_id: SessionId, state: SummaryState) -> SummaryWithSegments | None:
        """Return the adopted version with its segments."""
        del session_id
        version = self._adopted
        if version is None or state is not SummaryState.ADOPTED:
            return None
        by_id = {segment.id: segment for segment in self.segments.values()}
        return SummaryWithSegments(version, tuple(by_id[known] for known in version.segment_ids))

    async def adopt_summary(self, adoption: Adoption, lease: Lease | None = None) -> Session:
        """Make it the session's summary."""
        del lease
        if adoption.expected_version != self.session.summary_version:
            raise SummaryConflict("The session's summary has been changed.")
        self.session = replace(
            self.session,
            conversation_summary=adoption.text,
            summary_tokens=adoption.token_count,
            summary_through_id=adoption.through_id,
            summary_through_position=adoption.through_position,
            summary_version=adoption.expected_version + 1,
        )
        self._adopted = _version(self.session, adoption)
        return self.session


def _version(session: Session, adoption: Adoption) -> SummaryVersion:
    """Take over whatever the version has of the adoption."""
    of_adoption: Json = {name: getattr(adoption, name) for name in _VERSIONED if hasattr(adoption, name)}
    made: Json = {"version": session.summary_version, "state": SummaryState.ADOPTED, "created_at": session.created_at}
    return SummaryVersion(id=SummaryId(UUID(int=session.summary_version)), **made, **of_adoption)
