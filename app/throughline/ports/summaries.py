"""Where summaries are kept, as turns, jobs and requests need it: segments, versions, the cursor, the view state.

One method is one transaction; `lease` is None where no turn asks.
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
    """Segments and versions of a session's summary, every change of the cursor by compare-and-set."""

    async def find_segment(self, session_id: SessionId, read_hash: str) -> Segment | None:
        """Return the segment that was made from exactly this, None where it was never made."""

    async def save_segment(self, session_id: SessionId, segment: NewSegment, lease: Lease | None = None) -> Segment:
        """Store a segment; one with the same `read_hash` is returned as it is and nothing is written.

        The cursor stays where it is. Raises LeaseLost, NotFound.
        """

    async def save_failure(self, session: Session, reason: str) -> Session:
        """Keep why no summary could be written, until one is; return the session with it."""

    async def usual_seconds(self, session_id: SessionId) -> float | None:
        """Return what a text of the session's summaries took to write on average, None where there is none."""

    async def chain_of_segments(self, session_id: SessionId, first: int, before: int) -> tuple[Segment, ...]:
        """Return stored segments that follow each other from `first` on and end before `before`, long ones first."""

    async def copy_segment(
        self, session_id: SessionId, wanted: WantedSegment, lease: Lease | None = None
    ) -> Segment | None:
        """Return the answer to the same request of another session of the owner, stored in this session, too.

        None where there is none; nobody else's sessions are looked at. Raises LeaseLost, SummaryConflict, NotFound.
        """

    async def load_parts(self, session_id: SessionId, state: SummaryState) -> SummaryWithSegments | None:
        """Return the adopted, or the newest prepared version that builds on the adopted one, with its segments."""

    async def adopt_summary(self, adoption: Adoption, lease: Lease | None = None) -> Session:
        """Store a version and move the session's cursor to it, by compare-and-set on `expected_version`.

        The cursor only moves forward. Prepared versions of an older base are discarded in the same transaction.
        Raises SummaryConflict, and LeaseLost where a lease is given and gone.
        """

    async def prepare_summary(self, adoption: Adoption) -> SummaryVersion:
        """Store a version as prepared, in place of an earlier prepared one; the session stays as it is.

        Raises SummaryConflict where the session's version is not `expected_version`, or a prepared one reaches as far.
        """

    async def adopt_prepared(
        self, session_id: SessionId, summary_id: SummaryId, expected_version: int, lease: Lease | None = None
    ) -> Session:
        """Make the prepared version the session's summary, by compare-and-set. Raises SummaryConflict, LeaseLost."""

    async def save_view(
        self, session_id: SessionId, view_state: JsonObject, expected_version: int, lease: Lease | None = None
    ) -> bool:
        """Keep what the stages have done to the view; False (nothing written) where the summary changed meanwhile.

        Raises LeaseLost where a lease is given and gone.
        """

    async def save_skipped(self, session_id: SessionId, through_position: int, expected_version: int) -> None:
        """Note in the view state, and nowhere else in it, that a summary up to there was not worth it.

        Nothing is written where the summary changed meanwhile.
        """

    async def ask_for_next(self, session_id: SessionId) -> None:
        """Have a job prepare the session's next summary, if it still is due then."""

    async def take_lease(self, session_id: SessionId, seconds: float) -> SummaryLease:
        """Keep others from summarizing the session on demand for so long. Raises SummaryInProgress, NotFound."""

    async def renew_leases(
        self, leases: Collection[SummaryLease], seconds: float
    ) -> Mapping[SummaryLease, LeaseRenewal]:
        """Let the leases last for so long from now; those that have passed to others are not in the answer."""

    async def release_lease(self, lease: SummaryLease) -> None:
        """End the lease."""

    async def latest(self, session_id: SessionId) -> SummaryVersion | None:
        """Return the adopted version, None where there is none."""
