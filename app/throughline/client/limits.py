"""What a program may set of how it waits and how much it queues; the service's settings are not read for it."""

import math
from dataclasses import dataclass, fields

from throughline.domain.errors import InvalidInput
from throughline.domain.submission import Caps


@dataclass(frozen=True, slots=True)
class Limits:
    """Each but the last stands for the service's setting of the same name, and is by default what that is by default.

    For `database_away_timeout_seconds` `wait` and `events` go on while the database cannot be asked (a restart, a
    failover); other calls raise DatabaseUnavailable at once, as a program may have something better to do.
    The caps are judged where a message is accepted, so this program's hold for what it submits: give those that the
    service is run with, where they were changed. Raises InvalidInput for what is not above zero.
    """

    max_queued_per_session: int = 10
    max_queued_per_owner: int = 1_000
    no_worker_timeout_seconds: float = 30.0
    db_pool_timeout_seconds: float = 5.0
    database_away_timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Check each."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InvalidInput(f"{field.name} is {value!r}; it has to be a number above 0.", field=field.name)

    @property
    def caps(self) -> Caps:
        """How many messages may wait."""
        return Caps(queued_per_session=self.max_queued_per_session, queued_per_owner=self.max_queued_per_owner)


DEFAULT_LIMITS = Limits()
