"""JSON shapes of what model calls used and cost."""

from typing import Annotated

from pydantic import Field

from throughline.domain.usage_report import UsageGroup, UsageKey
from throughline.wire.json_shape import JsonDict, Shape, Time


class UsageOut(Shape):
    """Tokens as the provider reported them, and their cost; null for what is not known."""

    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = Field(None, description="of the input, read from the provider's cache")
    cache_write_tokens: int | None = Field(None, description="of the input, written to the provider's cache")
    reasoning_tokens: int | None = Field(None, description="of the output, not part of the answer's text")
    cost_usd: float | None = Field(None, description="US dollars at the price of the day; null if a price is unknown")


class UsageGroupOut(UsageOut):
    """The calls of one group, added up. `cost_usd` is the sum of the known costs, null if none is known."""

    group: Annotated[
        dict[str, str | None],
        Field(description="the group's value of each field of `group_by`; null: calls of no single user or agent"),
    ]
    calls: int
    unpriced_calls: int = Field(description="calls whose cost is unknown and is not part of `cost_usd`")


class UsageReportOut(Shape):
    """What model calls used between two times: `since` is included, `until` is not."""

    since: Time
    until: Time
    data: list[UsageGroupOut]


def group_json(group: UsageGroup) -> JsonDict:
    """Return a group of calls in the shape of UsageGroupOut."""
    usage = UsageOut.render(group.usage)
    key: dict[UsageKey, str | None] = {**group.key}
    return {
        "group": {name.value: value for name, value in key.items()},
        "calls": group.calls,
        "unpriced_calls": group.unpriced_calls,
        **usage,
    }
