"""What a forced summary came to, as `summarize_now` returns it to a door."""

from dataclasses import dataclass

from app.domain.session import Session


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """`outcome` is `adopted`, `skipped` (not worth it) or `failed`; `session` is the session afterwards."""

    outcome: str
    detail: str
    tokens_before: int
    tokens_after: int
    session: Session
