"""The job that prepares a session's next summary in advance.

Losing the job costs only time, because a turn that needs a missing summary writes it itself.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import structlog

from throughline.domain.errors import NotFound
from throughline.domain.ids import SessionId
from throughline.domain.summary import CompactionOutcome
from throughline.execution.compute_threads import work_for
from throughline.execution.error_boundary import ErrorBoundary
from throughline.turn.state import TurnDependencies
from throughline.turn.summary.prepare import is_next_due, prepare_next
from throughline.turn.worker.jobs import NotDone

MOST_PLANS = 3
"""Consecutive planning attempts of a job if the session's summary keeps changing while it writes."""

log = structlog.get_logger(__name__)


async def prepare_summary(
    dependencies: TurnDependencies, index_session: Callable[[SessionId], Awaitable[int]], subject: str
) -> NotDone | None:
    """Prepare the summary of the session named by `subject`, if one is due; a repeated call finds nothing to do.

    Afterwards index the session's messages, so that those the summary covers can be found and quoted.

    Return None if the job is done. If a further summary is due, the next round prepares it, so that other sessions'
    jobs run in between. That happens with a long history, or if a turn ended meanwhile and found this job queued.
    Raises DatabaseUnavailable.
    """
    session_id = SessionId(UUID(subject))
    try:
        owner_id = await dependencies.messages.find_owner(session_id)
        work_for(owner_id)
        not_done = await _prepare(dependencies, session_id)
    except NotFound:
        log.info("job skipped, session deleted", session_id=subject)
        return None
    with ErrorBoundary(log.warning, "session indexing failed", session_id=subject):
        await index_session(session_id)
    return not_done


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
