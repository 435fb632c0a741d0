"""Backoff: the pause before the next try."""


def doubled_backoff(tries: int, first_seconds: float, longest_seconds: float) -> float:
    """Return the seconds to pause after `tries` tries (at least one).

    After the first try it is `first_seconds`; each further one doubles it, up to `longest_seconds`.
    """
    doublings = min(tries - 1, 64)  # more would be useless, and 2.0**1024 overflows
    return min(longest_seconds, first_seconds * 2.0**doublings)
