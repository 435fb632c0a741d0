"""The error tree. Each error is temporary (trying again may help, after `delay_seconds`) or permanent.

ThroughlineError
├── PermanentError
│   ├── InvalidInput · NotFound · NotAuthenticated · NotAllowed
│   ├── IdempotencyKeyReused · SessionBusy · QueueFull (OwnerQueueFull)
│   ├── SummaryConflict · SummaryInProgress · LeaseLost
│   ├── SettingInvalid · AgentInvalid · PromptCannotFit · DatabaseUnusable · RunAbandoned · TurnTimeout
│   └── ModelRejected
│       ├── ModelAuthenticationFailed · ModelQuotaExhausted · ModelInvalidRequest · ModelRefused · AnswerTooLong
│       └── ContextOverflow
└── TemporaryError
    ├── DatabaseUnavailable · NoWorkerAvailable · TurnLimitReached
    └── ModelUnavailable
        └── ModelRateLimited · ModelTimeout · AnswerIncomplete

`code` is the stable name of the error on the wire. The text says what is wrong, with the value, and what to do; it
never holds a secret, another user's text or our inside.
"""

import traceback
from typing import ClassVar

MOST_PLACES = 40
"""Enough to reach our own lines above those of the libraries that an error came through."""


class ThroughlineError(Exception):
    """Root of every error this service raises on purpose."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, detail: str) -> None:
        """Keep `detail`, the sentence for the reader."""
        super().__init__(detail)
        self.detail = detail


class PermanentError(ThroughlineError):
    """Trying the same again cannot help."""


class TemporaryError(ThroughlineError):
    """Trying again may help, after `delay_seconds` where known."""

    def __init__(self, detail: str, *, delay_seconds: float | None = None) -> None:
        """Keep `detail` and how long the other side asked us to wait."""
        super().__init__(detail)
        self.delay_seconds = delay_seconds


class InvalidInput(PermanentError):
    """A request's value is not acceptable; `field` names where it stands."""

    code = "invalid_input"

    def __init__(self, detail: str, *, field: str = "") -> None:
        """Keep `detail` and the dotted name of the field."""
        super().__init__(detail)
        self.field = field


class NotFound(PermanentError):
    """The thing does not exist, or belongs to somebody else: the two are told in the same words."""

    code = "not_found"


class NotAuthenticated(PermanentError):
    """No key, an unknown key or a revoked key."""

    code = "not_authenticated"


class NotAllowed(PermanentError):
    """The key is known but lacks the scope."""

    code = "not_allowed"


class IdempotencyKeyReused(PermanentError):
    """The idempotency key was used before with another body."""

    code = "idempotency_key_reused"


class SessionBusy(PermanentError):
    """A turn of this session is running and the caller asked to be rejected; `run_id` names it."""

    code = "session_busy"

    def __init__(self, detail: str, *, run_id: str) -> None:
        """Keep `detail` and the id of the running run."""
        super().__init__(detail)
        self.run_id = run_id


class QueueFull(PermanentError):
    """The session already has as many waiting messages as it may have: `limit`, which the setting `cap` names."""

    code = "queue_full"

    def __init__(self, detail: str, *, cap: str, limit: int) -> None:
        """Keep `detail`, the name of the cap and its number."""
        super().__init__(detail)
        self.cap = cap
        self.limit = limit


class OwnerQueueFull(QueueFull):
    """The owner's sessions together have as many waiting messages as they may have."""

    code = "owner_queue_full"


class SummaryConflict(PermanentError):
    """Another writer changed the session's summary first; nothing of ours was stored."""

    code = "summary_conflict"


class SummaryInProgress(PermanentError):
    """A summary of this session is being written on demand already; `summary_request_id` names it."""

    code = "summary_in_progress"

    def __init__(self, detail: str, *, summary_request_id: str) -> None:
        """Keep `detail` and what names the one under way."""
        super().__init__(detail)
        self.summary_request_id = summary_request_id


class LeaseLost(PermanentError):
    """The run is no longer ours: its fence moved on or it ended. Stop at once and write nothing."""

    code = "lease_lost"


class SettingInvalid(PermanentError):
    """A setting is missing, malformed or contradicts another one."""

    code = "setting_invalid"


class AgentInvalid(PermanentError):
    """An agent definition cannot be used: file, field, value and what is allowed are in the text."""

    code = "agent_invalid"


class PromptCannotFit(PermanentError):
    """System prompt, tools and reserve leave no room for a conversation in the model's window."""

    code = "prompt_cannot_fit"


class DatabaseUnusable(PermanentError):
    """The database cannot serve us as it is: too old, wrong schema revision, no permission, bad address."""

    code = "database_unusable"


class DatabaseUnavailable(TemporaryError):
    """The database did not answer, or its connections are all in use."""

    code = "database_unavailable"


class DatabaseBusy(DatabaseUnavailable):
    """The database is there and did not do this in time: the same again may take as long again."""


class DatabaseFull(DatabaseUnavailable):
    """The database has no disk, memory or connection left for what was asked of it."""


class ClaimingFailed(PermanentError):
    """The claim loop of a process has ended by itself: it takes no more turns, and has to be started anew."""

    code = "claiming_broke"


class NoWorkerAvailable(TemporaryError):
    """No worker took the run in time; the message is stored and will be answered."""

    code = "no_worker_available"


class TurnLimitReached(TemporaryError):
    """All open turns of this process are taken, or all that may be taken by what is no turn; nothing was done."""

    code = "turns_taken"


class SummaryLimitReached(TemporaryError):
    """The owner has as many summaries on demand under way as one user may have; nothing was done."""

    code = "owner_summaries_taken"


class ModelRejected(PermanentError):
    """The model provider refused the request; trying the same again cannot help."""

    code = "model_rejected"


class ModelAuthenticationFailed(ModelRejected):
    """The provider does not accept our key, or the key may not use this model."""

    code = "model_authentication_failed"


class ModelQuotaExhausted(ModelRejected):
    """The provider account has no credit or quota left."""

    code = "model_quota_exhausted"


class ModelInvalidRequest(ModelRejected):
    """The provider calls the request malformed, or does not know the model."""

    code = "model_invalid_request"


class ModelRefused(ModelRejected):
    """The model or the provider's filter declined to answer this content."""

    code = "model_refused"


class AnswerTooLong(ModelRejected):
    """The model went on past what an answer may have."""

    code = "answer_too_long"


class ContextOverflow(ModelRejected):
    """The provider says the prompt is longer than its window.

    `window_tokens` and `prompt_tokens` are what the provider named, None where it named nothing plausible.
    """

    code = "context_overflow"

    def __init__(self, detail: str, *, window_tokens: int | None = None, prompt_tokens: int | None = None) -> None:
        """Keep `detail` and the provider's numbers."""
        super().__init__(detail)
        self.window_tokens = window_tokens
        self.prompt_tokens = prompt_tokens


class ModelUnavailable(TemporaryError):
    """The provider failed for a passing reason: overload, server error, broken connection."""

    code = "model_unavailable"


class ModelRateLimited(ModelUnavailable):
    """The provider asks us to slow down."""

    code = "model_rate_limited"


class ModelTimeout(ModelUnavailable):
    """The provider sent nothing for too long."""

    code = "model_timeout"


class AnswerIncomplete(ModelUnavailable):
    """The answer ended without a finish reason, or came back empty: it is not an answer."""

    code = "answer_incomplete"


class RunAbandoned(PermanentError):
    """The run was started several times and no process lived to finish it; it is not tried again."""

    code = "run_abandoned"


class TurnTimeout(PermanentError):
    """The turn used up its deadline before there was an answer."""

    code = "turn_timeout"


def places_of(error: BaseException) -> str:
    """Return the lines the error went through, for the log: its text stays out, it may hold a user's words."""
    frames = traceback.extract_tb(error.__traceback__)[-MOST_PLACES:]
    return " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
