"""How fast summary models write, measured in their calls: how long a preparation waits, and which calls are not begun.

`SummariserCalls` measures; `prepare.py` asks for its time limit. A process has one `ModelPaces`.
"""

import math
from dataclasses import dataclass, field

MOST_SECONDS = 600.0
"""Longest time limit that follows from a measured speed."""

SAFETY = 2.0
"""Factor of the time that a text takes at the measured speed, because no call is as fast as the one before."""

VALID_SECONDS = 600.0
"""Time after which a turn tries a slow model again: its server may have become faster."""

SHORTEST_SHARE = 1 / 4
"""Share of the largest answer that an answer is assumed to take as long as none has ended."""


@dataclass(slots=True)
class ModelPaces:
    """The speeds of a process's summary models, by the keys of their breakers; those of the latest calls count.

    `_heard` holds for each model the tokens of its latest answer, the seconds that they took, and the time of the clock
    then. `_whole` holds the tokens of its latest answer that was not cut off.
    """

    _heard: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    _whole: dict[str, int] = field(default_factory=dict)

    def record(self, key: str, tokens: int, seconds: float, *, now: float, is_whole: bool) -> None:
        """Remember the speed of a call, also if it was cut off, unless it wrote no token or took no time."""
        if tokens <= 0 or seconds <= 0:
            return
        self._heard[key] = (tokens, seconds, now)
        if is_whole:
            self._whole[key] = tokens

    def tokens_per_second(self, key: str) -> float | None:
        """Return the model's latest speed, with the time it reads in; None if it was not measured."""
        if key not in self._heard:
            return None
        tokens, seconds, _ = self._heard[key]
        return tokens / seconds

    def patient_seconds(self, key: str, tokens: int, *, at_least: float) -> float:
        """Return how long to wait for a text of at most `tokens` if no user waits."""
        speed = self.tokens_per_second(key)
        wanted = 0.0 if speed is None else SAFETY * tokens / speed
        return max(at_least, min(wanted, MOST_SECONDS))

    def is_too_slow(self, key: str, tokens: int, *, seconds: float, now: float) -> bool:
        """Return whether an answer of at most `tokens`, of the usual length, cannot end within `seconds`."""
        speed = self.tokens_per_second(key)
        if speed is None or now - self._heard[key][2] > VALID_SECONDS:
            return False
        usual = self._whole.get(key) or math.ceil(SHORTEST_SHARE * tokens)
        return min(usual, tokens) / speed > seconds
