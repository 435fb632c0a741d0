"""Combination of search rankings by rank alone, since scores of different searches are not comparable."""

from collections.abc import Sequence
from dataclasses import replace

from throughline.domain.ids import MemoryId
from throughline.domain.memory import Memory

K = 60
"""Reciprocal rank fusion, with the constant of Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms
Condorcet and individual Rank Learning Methods", SIGIR 2009."""


def fuse(*rankings: Sequence[Memory]) -> tuple[Memory, ...]:
    """Return every memory once, best first; its score is the sum of 1 / (K + rank) over the rankings."""
    scores: dict[MemoryId, float] = {}
    found: dict[MemoryId, Memory] = {}
    for ranking in rankings:
        for rank, memory in enumerate(ranking, start=1):
            scores[memory.id] = scores.get(memory.id, 0.0) + 1 / (K + rank)
            found.setdefault(memory.id, memory)
    order = sorted(found, key=lambda memory_id: (scores[memory_id], memory_id), reverse=True)
    return tuple(replace(found[memory_id], score=round(scores[memory_id], 6)) for memory_id in order)
