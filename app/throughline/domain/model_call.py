"""Calls of models that somebody pays for: what each was made for, and what it used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from throughline.domain.prompt import Usage


class CallPurpose(StrEnum):
    """What a model call was made for: a step of a turn, a summary, or vectors for the search by meaning."""

    ANSWER = "answer"
    SUMMARY = "summary"
    EMBEDDING = "embedding"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A paid call of the model with this full name. Calls that failed without a usage are not recorded."""

    model: str
    purpose: CallPurpose
    usage: Usage


def total_usage(calls: Sequence[ModelCall]) -> Usage:
    """Return the sum of the calls' usages.

    A token count that no call reported stays None. The cost is None if that of one call is unknown.
    """
    usages = [call.usage for call in calls]
    costs = [usage.cost_usd for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return Usage(
        input_tokens=_sum(usage.input_tokens for usage in usages),
        output_tokens=_sum(usage.output_tokens for usage in usages),
        cached_tokens=_sum(usage.cached_tokens for usage in usages),
        cache_write_tokens=_sum(usage.cache_write_tokens for usage in usages),
        reasoning_tokens=_sum(usage.reasoning_tokens for usage in usages),
        cost_usd=sum(known, Decimal()) if costs and len(known) == len(costs) else None,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
