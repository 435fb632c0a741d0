"""Errors of calls to summary models, and which of them are the model's own.

`summariser_calls.py` raises them.
"""

from throughline.domain.errors import ModelAuthenticationFailed, ModelQuotaExhausted, ModelRejected, ModelUnavailable
from throughline.summary.summariser import SummaryRejected

RETRY_PAUSE_SECONDS = 0.5

SUMMARISER_ERRORS = (ModelRejected, ModelUnavailable, SummaryRejected)
"""Errors after which the next summary model is tried."""

OF_THE_MODEL = (ModelUnavailable, ModelAuthenticationFailed, ModelQuotaExhausted)
"""Failures that would affect every session.

All others depend on a session's request and count for that session alone, so that one user's text blocks no other
user's summaries.
"""


class CircuitOpen(ModelUnavailable):
    """Error without a call: the summary model failed several times in a row, and its cool-down is not over."""

    code = "circuit_open"


class SummaryTimedOut(ModelUnavailable):
    """Error of a summary model that did not answer within its share of the compaction's time limit."""

    code = "timeout"


class SummaryTooSlow(ModelUnavailable):
    """Error of a summary model that was still writing when its time was up, or that is known to be too slow for a turn.

    It does not count as a failure of the model.
    """

    code = "too_slow"


def pause_seconds(error: ModelUnavailable) -> float:
    """Return the seconds to wait before a model is asked again: the provider's delay, or a short default."""
    return RETRY_PAUSE_SECONDS if error.delay_seconds is None else error.delay_seconds
