"""Creation of all ids: UUIDv7, so that new rows are close together in indexes."""

from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """Return a new id. Ids grow with time, but messages are ordered by their positions, never by ids."""
    return uuid7()
