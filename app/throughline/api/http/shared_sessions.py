"""Access to shared sessions: a participant's request is served in the name of the session's owner."""

from throughline.db.slack.participants import ParticipantRepository
from throughline.domain.clock import Clock
from throughline.domain.ids import RunId, SessionId, UserId

ASK_AGAIN_SECONDS = 5.0


class SharedSessions:
    """Look-up of session participants that costs no query if the service has no participants.

    The existence of participants is remembered for good, their absence for ASK_AGAIN_SECONDS.
    """

    def __init__(self, participants: ParticipantRepository, clock: Clock) -> None:
        self._participants = participants
        self._clock = clock
        self._is_any = False
        self._ask_at = clock.monotonic()

    async def owner_for(
        self, user_id: UserId, *, session_id: SessionId | None = None, run_id: RunId | None = None
    ) -> UserId | None:
        """Return the owner of the session or run if the user is a participant, else None."""
        if not await self._any_exists():
            return None
        return await self._participants.owner_for(user_id, session_id=session_id, run_id=run_id)

    async def _any_exists(self) -> bool:
        if not self._is_any and self._clock.monotonic() >= self._ask_at:
            self._is_any = await self._participants.any_exists()
            self._ask_at = self._clock.monotonic() + ASK_AGAIN_SECONDS
        return self._is_any
