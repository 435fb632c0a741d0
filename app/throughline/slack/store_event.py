"""Takes what was read from Slack into the database; called before the acknowledgement, so it calls nobody else."""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from throughline.db.slack.database import SlackDatabase
from throughline.db.slack.inbox import Taken
from throughline.db.slack.slack_events import Deleted, Edited, EditOutcome, Left, SlackMessage, WithdrawalOutcome
from throughline.slack.config import Identity
from throughline.slack.read_event import StopSign, read_event

log = structlog.get_logger(__name__)


class EventStorage:
    """Stores messages, changes and withdraws those that wait, takes out who left, hands stop signs to `on_stop`."""

    def __init__(
        self, database: SlackDatabase, identity: Identity, on_stop: Callable[[StopSign], Awaitable[None]]
    ) -> None:
        """Take what is for `identity` into `database`; `on_stop` may ask the database only."""
        self._database = database
        self._identity = identity
        self._on_stop = on_stop

    async def take(self, body: Mapping[str, object]) -> None:
        """Take one event. Raises DatabaseUnavailable: it is then not acknowledged, and Slack sends it again."""
        incoming = read_event(body, self._identity)
        match incoming:
            case SlackMessage():
                await self._accept(incoming)
            case Edited():
                await self._edit(incoming)
            case Deleted():
                withdrawn = await self._database.inbox.withdraw(incoming)
                tell = log.debug if withdrawn is WithdrawalOutcome.LEFT else log.info
                tell("slack message deleted", outcome=withdrawn.value, channel=incoming.place.channel_id)
            case StopSign():
                await self._on_stop(incoming)
            case Left():
                sessions = await self._database.participants.leave(incoming)
                log.info("slack member left a channel", channel=incoming.channel_id, sessions=sessions)
            case None:
                pass

    async def _edit(self, edited: Edited) -> None:
        outcome = await self._database.inbox.edit(edited)
        tell = log.debug if outcome is EditOutcome.LEFT else log.info
        tell("slack message edited", outcome=outcome.value, channel=edited.place.channel_id)

    async def _accept(self, message: SlackMessage) -> None:
        taken = await self._database.inbox.accept(message)
        tell = log.debug if taken is Taken.NOT_FOR_US else log.info
        tell("slack message", outcome=taken.value, channel=message.place.channel_id)
