"""What an agent of a replay is told of its context: the strategies and summary shapes that can be compared."""

from typing import TypeAlias

from throughline.context.policy import Strategy, SummaryShape

Settings: TypeAlias = dict[str, str | dict[str, str]]  # part of an agent file

SHIPPED = "shipped"
"""What the service does when an agent file says nothing."""

STRATEGIES: dict[str, Settings] = {
    SHIPPED: {},
    SummaryShape.TIERED.value: {"summary": {"shape": SummaryShape.TIERED.value}},
    SummaryShape.ROLLING.value: {"summary": {"shape": SummaryShape.ROLLING.value}},
    Strategy.TRUNCATION.value: {"strategy": Strategy.TRUNCATION.value},
    Strategy.IMPORTANCE.value: {"strategy": Strategy.IMPORTANCE.value},
}
WITHOUT_SUMMARIES = frozenset((Strategy.TRUNCATION.value, Strategy.IMPORTANCE.value))
