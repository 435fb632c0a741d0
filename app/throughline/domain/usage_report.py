"""Reports of what model calls used: what is asked for, and its groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from throughline.domain.basic_types import RunId, SessionId, UserId
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


class UsageKey(StrEnum):
    """What model calls are grouped by. A day is one of UTC."""

    DAY = "day"
    USER = "user"
    AGENT = "agent"
    MODEL = "model"
    PURPOSE = "purpose"


NO_KEYS = "none"


def keys_of(text: str) -> tuple[UsageKey, ...]:
    """Return the keys in a text such as `day, model`; none for `none`. Raises ValueError that says what is known."""
    names = [name.strip() for name in text.split(",")]
    if names == [NO_KEYS]:
        return ()
    if len(set(names)) < len(names) or not set(names) <= set(UsageKey):
        known = ", ".join(key.value for key in UsageKey)
        raise ValueError(f"Must be {NO_KEYS}, or some of {known}, each once, separated by commas.")
    return tuple(map(UsageKey, names))


@dataclass(frozen=True, slots=True)
class Payer:
    """For whom model calls were made. `owner_id` is None for calls that served no single user."""

    owner_id: UserId | None = None
    session_id: SessionId | None = None
    run_id: RunId | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """The calls of one owner (None: of all) from `since` until before `until`, in groups of `group_by`."""

    owner_id: UserId | None
    since: datetime
    until: datetime
    group_by: tuple[UsageKey, ...] = ()


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """The calls of one group. `key` holds the group's value of each field that was grouped by.

    Of `usage` the cost is the sum of the known ones; `unpriced_calls` is the number of calls whose cost is unknown.
    """

    key: Mapping[UsageKey, str | None]
    calls: int
    unpriced_calls: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Spending:
    """What a user's calls of one agent have used today: tokens read and written, and known costs in US dollars."""

    tokens: int = 0
    cost_usd: Decimal = field(default_factory=Decimal)


@dataclass(frozen=True, slots=True)
class DaySpending:
    """What a user's calls of one agent have used today (`spent`), and what is needed to estimate running turns.

    - `ended`: what the `ended_turns` turns that no longer run have used together.
    - `running`: what each running turn has used that was claimed before the turn that asks.
    """

    spent: Spending = field(default_factory=Spending)
    ended: Spending = field(default_factory=Spending)
    ended_turns: int = 0
    running: tuple[Spending, ...] = ()


def until_next_day(now: datetime) -> timedelta:
    """Return the time until midnight. `now` is in UTC."""
    return start_of_day(now) + timedelta(days=1) - now


def start_of_day(now: datetime) -> datetime:
    """Return the time of the last midnight. `now` is in UTC."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0)
