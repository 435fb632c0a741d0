"""The prompt cache: a prefix that ended at a marker is read by a later request that begins with it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from fakes.anthropic_double.units import Unit

LOOKBACK = 20
"""So many blocks before each marker are looked at for a stored prefix."""

MINIMUM_TOKENS = 1024
"""Shorter prefixes are not cached, whatever the markers say."""


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Tokens of one prompt that were read from the cache, and tokens that were written to it."""

    read: int
    written: int


@dataclass(slots=True)
class PromptCache:
    """What was written so far, for all models; nothing expires."""

    _known: set[str] = field(default_factory=set)

    def use(self, model: str, units: Sequence[Unit]) -> CacheUse:
        """Read and write the cache as the request's markers ask for."""
        sums = list(accumulate(unit.tokens for unit in units))
        keys = list(accumulate((unit.identity for unit in units), _chained, initial=model))[1:]
        ends = [at for at, unit in enumerate(units) if unit.has_marker and sums[at] >= MINIMUM_TOKENS]
        found = max(
            (sums[at] for end in ends for at in range(max(end - LOOKBACK, 0), end + 1) if self._has(keys[at])),
            default=0,
        )
        self._known.update(keys[end] for end in ends)
        return CacheUse(read=found, written=max(sums[ends[-1]] - found, 0) if ends else 0)

    def _has(self, key: str) -> bool:
        return key in self._known


def _chained(before: str, identity: str) -> str:
    return hashlib.sha256(f"{before}\0{identity}".encode("utf-8", "surrogatepass")).hexdigest()
