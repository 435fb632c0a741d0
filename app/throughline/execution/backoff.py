"""How long to wait before the next try."""


def doubled_backoff(tries: int, first_seconds: float, longest_seconds: float) -> float:
    """Return the pause behind so many tries, one at least: twice as long each time, up to the longest."""
    doublings = min(tries - 1, 64)  # two to the power of any more is of no use, and of 1024 no float
    return min(longest_seconds, first_seconds * 2.0**doublings)
