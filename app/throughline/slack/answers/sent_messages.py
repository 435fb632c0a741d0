"""The messages of one delivery in its Slack thread: marked by metadata, found again after a crash, and edited."""

from dataclasses import dataclass

import structlog

from throughline.db.sessions.citations import CitationRepository
from throughline.domain.basic_types import Clock, JsonObject
from throughline.slack.config import Identity
from throughline.slack.store.database import SlackDatabase
from throughline.slack.store.outbox import Delivery, SlackOutbox
from throughline.slack.web_api import GONE, MAX_WAIT_SECONDS, TOKEN_ERRORS, SlackRefused, SlackUnsure, SlackWebApi

EVENT_TYPE = "throughline_answer"
LOOK_SECONDS = 1.0
TRIES = 3
WITHDRAWN = "_(withdrawn)_"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryServices:
    """Dependencies of a delivery: database, calls to Slack, clock, the bot's identity, and the checks of citations."""

    slack: SlackDatabase
    calls: SlackWebApi
    clock: Clock
    identity: Identity
    citations: CitationRepository

    @property
    def outbox(self) -> SlackOutbox:
        return self.slack.outbox


def metadata_of(delivery: Delivery, number: int) -> JsonObject:
    """Return the metadata of message `number` of a delivery, by which the message can be found in Slack."""
    return {
        "event_type": EVENT_TYPE,
        "event_payload": {
            "delivery": str(delivery.lease.id),
            "run": "" if delivery.run_id is None else str(delivery.run_id),
            "part": number,
        },
    }


@dataclass(frozen=True, slots=True)
class SentMessages:
    """The messages of `delivery`, addressed by their numbers."""

    services: DeliveryServices
    delivery: Delivery

    async def find(self, number: int) -> str | None:
        """Return the `ts` of message `number` if it was posted but not recorded in the outbox, else None.

        None as well if Slack refuses the search.
        The answers of a thread are delivered one after the other, so an unrecorded message of the bot is the one in
        question. Raises SlackUnsure if Slack has trouble.
        """
        delivery, outbox, calls = self.delivery, self.services.outbox, self.services.calls
        await self.services.clock.sleep(LOOK_SECONDS)
        try:
            found = await calls.replies(delivery.channel_id, delivery.thread_ts, after_ts=delivery.message_ts)
        except SlackRefused as error:
            log.warning("slack search for an unrecorded message refused", error=error.error)
            return None
        noted = await outbox.known_messages(delivery)
        for message in found:
            if self._is_ours(message, metadata_of(delivery, number)) and message.get("ts") not in noted:
                return str(message["ts"])
        return None

    async def rewrite(self, number: int, ts: str, part: str, max_wait_seconds: float = MAX_WAIT_SECONDS) -> None:
        """Edit message `number` to show `part`, or a withdrawal note if `part` is blank.

        A message that somebody has deleted stays deleted.
        """
        shown, metadata = part if part.strip() else WITHDRAWN, metadata_of(self.delivery, number)
        place = (self.delivery.channel_id, ts)
        for is_last in (*[False] * (TRIES - 1), True):
            try:
                await self.services.calls.update(place, shown, metadata, max_wait_seconds=max_wait_seconds)
            except SlackUnsure:
                if is_last:
                    raise
                await self.services.clock.sleep(LOOK_SECONDS)
            except SlackRefused as error:
                if error.error in GONE:
                    log.warning("slack answer message deleted in slack, not edited", error=error.error)
                    return
                if error.error != "streaming_state_conflict" or is_last:
                    raise
                await self.end_stream(ts)
            else:
                return

    async def end_stream(self, ts: str) -> None:
        """End the stream of the message `ts`, if it is streamed. A streamed message cannot be edited before that.

        A refusal is ignored unless the token was refused. An unknown outcome is only logged.
        """
        try:
            await self.services.calls.stop_stream(self.delivery.channel_id, ts)
        except SlackRefused as error:
            if error.error in TOKEN_ERRORS:
                raise
        except SlackUnsure:
            log.info("slack stream end unconfirmed")

    def _is_ours(self, message: JsonObject, wanted: JsonObject) -> bool:
        identity = self.services.identity
        if message.get("user") != identity.bot_user_id and message.get("bot_id") != identity.bot_id:
            return False
        metadata = message.get("metadata")
        return not metadata or metadata == wanted
