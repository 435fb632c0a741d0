"""Merges whose answer could not be used: they are not paid for again in every compaction that follows."""

from dataclasses import dataclass, field

from throughline.context.summaries.tiers import MERGED

MOST_KEPT = 1000
"""Older ones are forgotten, and tried again."""


@dataclass(slots=True)
class RefusedMerges:
    """Shared by all compactions of a process. `key` is the hash of what a merge reads."""

    _stretches: dict[str, int] = field(default_factory=dict)

    def note(self, key: str, stretches: int) -> None:
        """Keep that the merge failed when there were so many stretches."""
        self._stretches.pop(key, None)
        self._stretches[key] = stretches
        while len(self._stretches) > MOST_KEPT:
            del self._stretches[next(iter(self._stretches))]

    def may_try(self, key: str, stretches: int) -> bool:
        """Whether the merge may be asked for: it never failed, or as many stretches as one merges came since."""
        failed_at = self._stretches.get(key)
        return failed_at is None or stretches >= failed_at + MERGED
