"""The one place where ids are made: UUIDv7, so that new rows stand together in their indexes."""

from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """Return a fresh id. Ids grow with time but are never compared: order comes from positions."""
    return uuid7()
