"""The interface to stored summaries, for turns, jobs and requests: segments, versions, the cursor, the view state.

Each method is one transaction. `lease` is None if the caller is not a turn.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from throughline.domain.ids import SessionId, SummaryId
from throughline.domain.json_types import JsonObject
from throughline.domain.run import Lease, LeaseRenewal
from throughline.domain.session import Session
from throughline.domain.summary import (
    Adoption,
    NewSegment,
    Segment,
    SummaryLease,
    SummaryState,
    SummaryVersion,
    SummaryWithSegments,
    WantedSegment,
)


class SummaryStore(Protocol):
    """Segments and versions of a session's summary; every change of the cursor is a compare-and-set."""

    async def find_segment(self, session_id: SessionId, read_hash: str) -> Segment | None:
        """Return the segment made from the input with this hash, None if there is none."""

    async def save_segment(self, session_id: SessionId, segment: NewSegment, lease: Lease | None = None) -> Segment:
        """Store a segment; if one with the same `read_hash` exists, return it and write nothing.

        The cursor stays unchanged. Raises SummaryConflict if a message was redacted since it was read, LeaseLost,
        NotFound.
        """

    async def save_failure(self, session: Session, reason: str) -> Session:
        """Store why no summary could be written, until one is written; return the session with the reason."""

    async def usual_seconds(self, session_id: SessionId) -> float | None:
        """Return the average seconds that the session's newest segments took to write.

        None if no model has written one for this session.
        """

    async def chain_of_segments(self, session_id: SessionId, first: int, before: int) -> tuple[Segment, ...]:
        """Return consecutive stored segments from position `first`, all ending before `before`.

        If several segments could follow, the longest is taken.
        """

    async def copy_segment(
        self, session_id: SessionId, wanted: WantedSegment, lease: Lease | None = None
    ) -> Segment | None:
        """Copy the segment that answers the same request from another session of the same owner, and return the copy.

        Return None if there is none. Sessions of other owners are never read. Raises LeaseLost, SummaryConflict,
        NotFound.
        """

    async def load_parts(self, session_id: SessionId, state: SummaryState) -> SummaryWithSegments | None:
        """Return the adopted version, or the prepared one that builds on it, with its segments.

        `state` says which of the two; None if the session has no such version.
        """

    async def adopt_summary(self, adoption: Adoption, lease: Lease | None = None) -> Session:
        """Store a version and move the session's cursor to it, by compare-and-set on `expected_version`.

        The cursor only moves forward. Prepared versions of an older base are discarded in the same transaction. Raises
        SummaryConflict, and LeaseLost if the given lease is lost.
        """

    async def prepare_summary(self, adoption: Adoption) -> SummaryVersion:
        """Store a version as prepared, replacing an earlier prepared one; the adopted summary is unchanged.

        Raises SummaryConflict if the session's version is not `expected_version` or a prepared version covers as much.
        """

    async def adopt_prepared(
        self, session_id: SessionId, summary_id: SummaryId, expected_version: int, lease: Lease | None = None
    ) -> Session:
        """Adopt the prepared version, by compare-and-set on `expected_version`. Raises SummaryConflict, LeaseLost."""

    async def save_view(
        self, session_id: SessionId, view_state: JsonObject, expected_version: int, lease: Lease | None = None
    ) -> bool:
        """Store the view state after the compaction stages; return False, unstored, if the summary changed meanwhile.

        Raises LeaseLost if the given lease is lost.
        """

    async def save_skipped(self, session_id: SessionId, through_position: int, expected_version: int) -> None:
        """Record in the view state that a summary through this position was not worth writing.

        The rest of the view state is unchanged. Nothing is written if the summary changed meanwhile.
        """

    async def ask_for_next(self, session_id: SessionId) -> None:
        """Queue the job that prepares the session's next summary if one is due when the job runs."""

    async def take_lease(self, session_id: SessionId, seconds: float) -> SummaryLease:
        """Take the session's lease for a summary on demand, for `seconds`. Raises SummaryInProgress, NotFound."""

    async def renew_leases(
        self, leases: Collection[SummaryLease], seconds: float
    ) -> Mapping[SummaryLease, LeaseRenewal]:
        """Extend the leases to `seconds` from now; the result lacks leases that others have taken."""

    async def release_lease(self, lease: SummaryLease) -> None:
        """End the lease, so that another process can summarise the session. No error if the lease is lost."""

    async def latest(self, session_id: SessionId) -> SummaryVersion | None:
        """Return the adopted version, None if the session has no summary."""
