"""Tells our messages in a thread: the metadata each carries, and the one that was posted and never noted."""

import structlog

from throughline.db.slack.outbox import Delivery, SlackOutbox
from throughline.domain.json_types import JsonObject
from throughline.slack.calls import SlackCalls
from throughline.slack.config import Identity
from throughline.slack.refusals import SlackRefused

EVENT_TYPE = "throughline_answer"
log = structlog.get_logger(__name__)


def metadata_of(delivery: Delivery, number: int) -> JsonObject:
    """Return what message `number` of a delivery carries for whoever looks for it."""
    return {
        "event_type": EVENT_TYPE,
        "event_payload": {
            "delivery": str(delivery.lease.id),
            "run": "" if delivery.run_id is None else str(delivery.run_id),
            "part": number,
        },
    }


class OwnMessages:
    """Looks in threads."""

    def __init__(self, outbox: SlackOutbox, calls: SlackCalls, identity: Identity) -> None:
        """Look through `calls` for what `outbox` does not know and `identity` has written."""
        self._outbox = outbox
        self._calls = calls
        self._identity = identity

    async def unnoted(self, delivery: Delivery, number: int) -> str | None:
        """Return the `ts` of a message that was posted and never noted, None where there is none.

        A thread's answers are delivered one after the other, so a message of ours that nobody has noted is it.
        Raises SlackUnsure where Slack is in trouble.
        """
        try:
            found = await self._calls.replies(delivery.channel_id, delivery.thread_ts, after_ts=delivery.message_ts)
        except SlackRefused as error:
            log.warning("slack does not let us look for what was posted", error=error.error)
            return None
        noted = await self._outbox.known_messages(delivery)
        for message in found:
            if self._is_ours(message, metadata_of(delivery, number)) and message.get("ts") not in noted:
                return str(message["ts"])
        return None

    def _is_ours(self, message: JsonObject, wanted: JsonObject) -> bool:
        if message.get("user") != self._identity.bot_user_id and message.get("bot_id") != self._identity.bot_id:
            return False
        metadata = message.get("metadata")
        return not metadata or metadata == wanted
