"""The job that writes a session's next summary ahead.

What is lost of it is only time: the turn that needs a summary which is not there writes it itself.
"""

from datetime import timedelta
from uuid import UUID

import structlog

from throughline.domain.compaction import CompactionOutcome
from throughline.domain.errors import NotFound
from throughline.domain.ids import SessionId
from throughline.execution.compute_threads import work_for
from throughline.summary.prepare import is_next_due, prepare_next
from throughline.turn.state import TurnDependencies
from throughline.worker.jobs import NotDone

MOST_PLANS = 3
"""How often a job plans anew in a row because the session's summary was changed while it wrote."""

log = structlog.get_logger(__name__)


async def prepare_summary(dependencies: TurnDependencies, subject: str) -> NotDone | None:
    """Prepare what is due for the session named by `subject`, one summary; finds nothing to do the second time.

    Where more is due afterwards (a long history, or a turn
    that ended meanwhile and found this job in line) the rest is for the next round, so that other sessions have theirs
    in between. Raises DatabaseUnavailable.
    """
    session_id = SessionId(UUID(subject))
    try:
        owner_id = await dependencies.messages.find_owner(session_id)
        work_for(owner_id)
        return await _prepare(dependencies, session_id)
    except NotFound:
        log.info("session of a job is gone", session_id=subject)
        return None


async def _prepare(dependencies: TurnDependencies, session_id: SessionId) -> NotDone | None:
    session = (await dependencies.messages.load_context(session_id, None, max_tokens=1)).session
    for _ in range(MOST_PLANS):
        attempt = await prepare_next(dependencies, session)
        if attempt.is_stale:
            continue
        if attempt.outcome is CompactionOutcome.FAILED:
            return NotDone(timedelta(seconds=attempt.delay_seconds), has_failed=True)
        is_written = attempt.outcome is CompactionOutcome.PREPARED
        return NotDone() if is_written and await is_next_due(dependencies, session) else None
    return NotDone(has_failed=True)
