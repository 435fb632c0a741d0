"""How fast summary models read what nobody waits for, learned where one was cut off: it is then asked for less."""

from dataclasses import dataclass, field

CUT_OFF_SHARE = 0.5
"""A model that was cut off is taken to read at half the pace that would just have been too slow."""

MOST_KEPT = 1000
"""The models learned of last; the others are asked for as much as their windows take."""


@dataclass(slots=True)
class ReadingPace:
    """Shared by all compactions of a process. A pace is in tokens by our count per second, by a model's key.

    Only a model that was cut off has one. Its later answers make the pace faster and never slower: a short text may
    have taken its time for what was written, not for what was read.
    """

    _paces: dict[str, float] = field(default_factory=dict)

    def cut_off(self, key: str, tokens: int, seconds: float) -> None:
        """Keep that a request of so many tokens had no answer within so many seconds."""
        if seconds <= 0:
            return
        found = CUT_OFF_SHARE * tokens / seconds
        self._paces[key] = min(self._paces.pop(key, found), found)
        while len(self._paces) > MOST_KEPT:
            del self._paces[next(iter(self._paces))]

    def answered(self, key: str, tokens: int, seconds: float) -> None:
        """Keep that a request of so many tokens was answered after so many seconds."""
        known = self._paces.get(key)
        if known is None:
            return
        if seconds <= 0:
            del self._paces[key]
        else:
            self._paces[key] = max(known, tokens / seconds)

    def tokens_within(self, key: str, seconds: float) -> int | None:
        """Return what the model reads in so many seconds, None where nothing is known against it."""
        pace = self._paces.get(key)
        return None if pace is None else int(pace * seconds)
