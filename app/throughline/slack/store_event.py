"""Storage of Slack's events in the database.

An event is stored before it is acknowledged to Slack. Therefore nothing but the database is called here.
"""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from throughline.db.slack.database import SlackDatabase
from throughline.db.slack.inbox import AcceptOutcome
from throughline.db.slack.slack_events import Deleted, Edited, EditOutcome, Left, SlackMessage, WithdrawalOutcome
from throughline.slack.config import Identity
from throughline.slack.read_event import StopSign, read_event

log = structlog.get_logger(__name__)


class EventStorage:
    """Handler of Slack's events.

    It stores messages, changes or withdraws waiting ones, removes members who left, and passes stop reactions to
    `on_stop`.
    """

    def __init__(
        self, database: SlackDatabase, identity: Identity, on_stop: Callable[[StopSign], Awaitable[None]]
    ) -> None:
        """Store events for `identity` in `database`. `on_stop` may use the database only."""
        self._database = database
        self._identity = identity
        self._on_stop = on_stop

    async def store(self, body: Mapping[str, object]) -> None:
        """Handle one event.

        Raises DatabaseUnavailable. The event is then not acknowledged, and Slack sends it again.
        """
        incoming = read_event(body, self._identity)
        match incoming:
            case SlackMessage():
                await self._accept(incoming)
            case Edited():
                await self._edit(incoming)
            case Deleted():
                withdrawn = await self._database.inbox.withdraw(incoming)
                report = log.debug if withdrawn is WithdrawalOutcome.LEFT else log.info
                report("slack message deleted", outcome=withdrawn.value, channel=incoming.place.channel_id)
            case StopSign():
                await self._on_stop(incoming)
            case Left():
                sessions = await self._database.participants.leave(incoming)
                log.info("slack member removed from channel sessions", channel=incoming.channel_id, sessions=sessions)
            case None:
                pass

    async def _edit(self, edited: Edited) -> None:
        outcome = await self._database.inbox.edit(edited)
        report = log.debug if outcome is EditOutcome.LEFT else log.info
        report("slack message edited", outcome=outcome.value, channel=edited.place.channel_id)

    async def _accept(self, message: SlackMessage) -> None:
        taken = await self._database.inbox.accept(message)
        report = log.debug if taken is AcceptOutcome.NOT_FOR_US else log.info
        report("slack message received", outcome=taken.value, channel=message.place.channel_id)
