"""How many connections the process can hold: each is a file descriptor, and there is a limit on those."""

import resource

import structlog

OTHERS = 256
"""Descriptors for everything else: the database, models, logs."""

log = structlog.get_logger(__name__)


def allow_connections(wanted: int) -> int:
    """Return how many connections can be held, `wanted` at most. Raises the limit on descriptors as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHERS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    allowed = max(soft - OTHERS, soft // 2)
    log.warning("fewer connections than set: too few file descriptors", connections=allowed, descriptors=soft)
    return allowed
