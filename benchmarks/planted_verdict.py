"""Which shape the planted-fact measure speaks for: how many times what `rolling` keeps does `tiered` keep."""

import random
from collections.abc import Sequence
from statistics import quantiles

from benchmarks.planted_conversation import FactKind
from benchmarks.planted_memory import Variant
from benchmarks.planted_table import Found, share

AIM = 3.0
"""So many times as many facts as `rolling` must `tiered` keep to be worth its further calls."""

RESAMPLES = 2000
NARRATIVE_ONLY = frozenset((FactKind.FREE_FORM,))
"""What no ledger knows: the narrative alone keeps it."""

ALL_KINDS = frozenset(FactKind) - {FactKind.WITHDRAWN}


def verdict_lines(found: Sequence[Found]) -> list[str]:
    """Return the ratios after the last compaction, with their spread over the seeds, and what follows from them."""
    last = max(row.compactions for row in found)
    rows = [row for row in found if row.compactions == last]
    free = [row for row in rows if row.kind in NARRATIVE_ONLY]
    each = [(_kept(free, Variant.TIERED, seed), _kept(free, Variant.ROLLING, seed)) for seed in _seeds(free)]
    ahead = sum(tiered > rolling for tiered, rolling in each)
    best = "tiered" if ratio(free) >= AIM else "rolling" if ratio(free) < 1 else "tiered, but the aim is missed"
    return [
        f"narrative after {last} compactions, tiered / rolling, free-form facts: {_spread(free)}",
        f"  by seed, tiered {_range([pair[0] for pair in each])}, rolling {_range([pair[1] for pair in each])}",
        f"  tiered ahead in {ahead} of {len(each)} seeds",
        f"  the same, all kinds: {_spread([row for row in rows if row.kind in ALL_KINDS])}",
        f"aim {AIM:g}: the default should be {best}",
    ]


def ratio(rows: Sequence[Found]) -> float:
    """Return how many times as many facts the narratives of `tiered` hold; endless where `rolling` holds none."""
    tiered, rolling = (
        share([row for row in rows if row.variant is variant], lambda row: row.narrative)
        for variant in (Variant.TIERED, Variant.ROLLING)
    )
    return round(tiered / rolling, 6) if rolling else float("inf")


def _spread(rows: Sequence[Found]) -> str:
    """Return the ratio over all seeds, and between what it lies for nine of ten draws of as many seeds."""
    seeds, rng = _seeds(rows), random.Random(0)
    of_seed = {seed: [row for row in rows if row.seed == seed] for seed in seeds}
    drawn = [
        ratio([row for seed in rng.choices(seeds, k=len(seeds)) for row in of_seed[seed]]) for _ in range(RESAMPLES)
    ]
    low, *_, high = quantiles(drawn, n=20)
    return f"{ratio(rows):.1f} (90 % of draws of {len(seeds)} seeds: {low:.1f} to {high:.1f})"


def _seeds(rows: Sequence[Found]) -> list[int]:
    return sorted({row.seed for row in rows})


def _kept(rows: Sequence[Found], variant: Variant, seed: int) -> float:
    return share([row for row in rows if row.variant is variant and row.seed == seed], lambda row: row.narrative)


def _range(shares: Sequence[float]) -> str:
    return f"{min(shares):.0%} to {max(shares):.0%}"
