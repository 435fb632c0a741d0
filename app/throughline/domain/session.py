"""Sessions: a conversation of one owner with one agent."""

from dataclasses import dataclass, field
from datetime import datetime

from throughline.domain.basic_types import JsonObject, MessageId, SessionId, UserId
from throughline.domain.message import Source

MAX_EXTERNAL_ID = 255
"""Maximum number of characters of a session's external id."""


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to create. `fingerprint` is a hash of the request, to detect a reused idempotency key.

    `id` is a new id that the caller has made, None for one made by the database layer. With `expires_in_seconds` the
    session is in no list or search of the user's sessions, and is erased after that time without a turn.
    """

    owner_id: UserId
    agent: str
    title: str
    source: Source
    metadata: JsonObject
    idempotency_key: str | None = None
    fingerprint: str = ""
    external_id: str | None = None
    id: SessionId | None = None
    expires_in_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A stored session.

    `conversation_summary` is the text of the adopted summary. It replaces messages 1 to `summary_through_position` (the
    cursor; 0 without a summary). `summary_version` grows with every change of the summary, for compare-and-set.
    `summary_instructions` is the user's text about what every summary must keep. `summary_failure` says why the last
    attempt at a summary failed, '' after a success. `redaction_count` grows with every redaction; rows that were loaded
    before it are outdated. `external_id` is the caller's own id for the session, or None.
    """

    id: SessionId
    owner_id: UserId
    agent: str
    title: str
    source: Source
    created_at: datetime
    updated_at: datetime
    conversation_summary: str = ""
    summary_through_id: MessageId | None = None
    summary_through_position: int = 0
    summary_version: int = 0
    summary_tokens: int = 0
    message_count: int = 0
    view_state: JsonObject = field(default_factory=dict)
    metadata: JsonObject = field(default_factory=dict)
    archived: bool = False
    redaction_count: int = 0
    summary_instructions: str = ""
    summary_failure: str = ""
    summary_failed_at: datetime | None = None
    external_id: str | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other people may read the answers, so that nothing of the owner's other sessions belongs in them.

        Every session in Slack counts as shared.
        """
        return self.source is Source.SLACK
