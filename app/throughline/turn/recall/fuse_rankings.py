"""Combination of search rankings by rank alone, since scores of different searches are not comparable.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
Learning Methods", SIGIR 2009.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

DIGITS = 6
"""Decimal places of a fused score."""

Found = TypeVar("Found", bound=Hashable)


def fuse(*rankings: tuple[Sequence[Found], float], k: float) -> list[tuple[Found, float]]:
    """Return everything found once, best first, with its score: the sum of weight / (k + rank) over the rankings.

    A ranking comes with its weight. Of equal scores the one named first comes first.
    """
    scores: dict[Found, float] = {}
    for ranking, weight in rankings:
        for rank, found in enumerate(ranking, start=1):
            scores[found] = scores.get(found, 0.0) + weight / (k + rank)
    return [(found, round(score, DIGITS)) for found, score in sorted(scores.items(), key=lambda item: -item[1])]
