"""Limits that a program may set for waiting and queueing. The service's settings are not read for them."""

import math
from dataclasses import dataclass, fields

from throughline.domain.errors import InvalidInput
from throughline.domain.run import Caps


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a client. All but the last have the name and the default of a setting of the service.

    During a database outage (a restart, a failover), `wait` and `events` keep trying for
    `database_away_timeout_seconds`. Other calls raise DatabaseUnavailable at once, because the program may have
    something better to do.

    The limits on queued messages are checked by the process that accepts a message. For messages from this program, its
    own limits therefore apply: give the service's values if its settings were changed. Raises InvalidInput for a value
    that is no finite number above 0.
    """

    max_queued_per_session: int = 10
    max_queued_per_owner: int = 1_000
    no_worker_timeout_seconds: float = 30.0
    db_pool_timeout_seconds: float = 5.0
    database_away_timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InvalidInput(f"{field.name} is {value!r}; it must be a number above 0.", field=field.name)

    @property
    def caps(self) -> Caps:
        """The limits on waiting messages, as the database code that accepts a message takes them."""
        return Caps(queued_per_session=self.max_queued_per_session, queued_per_owner=self.max_queued_per_owner)


DEFAULT_LIMITS = Limits()
