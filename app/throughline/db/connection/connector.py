"""Connecting to the server of a database URL that fits it; the URL may name several, such as a primary and standbys.

asyncpg tries several hosts within one time limit, so that a host that does not answer at all leaves none for the next.
"""

from itertools import product
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # ships no types

from throughline.db.connection.address import Address, Host
from throughline.db.connection.failures import DRIVER_ERRORS, is_connection_lost

CONNECT_TIMEOUT_SECONDS = 5.0
"""Time limit for connecting to one host."""

_ANY, _STANDBY, _PREFER_STANDBY = "any", "standby", "prefer-standby"


class Connector:
    """Connects to the first host that answers and fits the URL's `target_session_attrs`.

    The host to which it connected last is tried first: after a fail-over the former primary may not answer at all.
    """

    def __init__(self, address: Address) -> None:
        """Prepare to connect to `address`."""
        self._address = address
        self._last: Host | None = None

    async def connect(self, **arguments: object) -> asyncpg.Connection:
        """Return a new connection; `arguments` of `asyncpg.connect` are added to those of the address.

        Raises DRIVER_ERRORS. If no host fits, it is TargetServerAttributeNotMatched where one answered, else the error
        of the last host. A host that refuses the role or the database ends the attempt.
        """
        failures: list[BaseException] = []
        for attribute, host in product(self._attributes(), self._ordered()):
            try:
                connection = await self._try(host, attribute, arguments)
            except DRIVER_ERRORS as error:
                if not _may_differ_elsewhere(error):
                    raise
                failures.append(error)
            else:
                self._last = host
                return connection
        raise next(filter(_is_unfit, failures), failures[-1])

    async def _try(self, host: Host, attribute: str, arguments: dict[str, object]) -> asyncpg.Connection:
        every: dict[str, Any] = {**self._address.arguments_for(host), "timeout": CONNECT_TIMEOUT_SECONDS, **arguments}
        return await asyncpg.connect(**{**every, "target_session_attrs": attribute})

    def _attributes(self) -> tuple[str, ...]:
        """Return what is asked of all hosts, in this order."""
        wanted = str(self._address.extra.get("target_session_attrs", _ANY))
        return (_STANDBY, _ANY) if wanted == _PREFER_STANDBY else (wanted,)

    def _ordered(self) -> tuple[Host, ...]:
        hosts = self._address.hosts
        return hosts if self._last is None else (self._last, *(host for host in hosts if host != self._last))


def _is_unfit(error: BaseException) -> bool:
    """Whether a server answered that is not what `target_session_attrs` asks for, such as a standby."""
    return isinstance(error, asyncpg.TargetServerAttributeNotMatched)


def _may_differ_elsewhere(error: BaseException) -> bool:
    """Whether another host may succeed: this one is not reached, is starting or stopping, or does not fit."""
    return isinstance(error, OSError) or is_connection_lost(error)
