"""A type for each kind of id, so that type checking rejects a session id where a run id is expected."""

from typing import NewType
from uuid import UUID

UserId = NewType("UserId", UUID)
KeyId = NewType("KeyId", UUID)
SessionId = NewType("SessionId", UUID)
MessageId = NewType("MessageId", UUID)
RunId = NewType("RunId", UUID)
SummaryId = NewType("SummaryId", UUID)
SegmentId = NewType("SegmentId", UUID)
MemoryId = NewType("MemoryId", UUID)
ProcessId = NewType("ProcessId", UUID)
