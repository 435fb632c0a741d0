"""The service's exceptions. Each error is temporary (retry after `delay_seconds`) or permanent (a retry cannot help).

ThroughlineError
├── PermanentError
│   ├── InvalidInput · NotFound · NotAuthenticated · NotAllowed
│   ├── IdempotencyKeyReused · ExternalIdTaken · SessionBusy (BehindWaitingTurn) · RunNotWaiting
│   ├── QueueFull (OwnerQueueFull) · ApprovalRequired · ConversationBranched
│   ├── SummaryConflict · SummaryInProgress · LeaseLost
│   ├── SettingInvalid · AgentInvalid · PromptCannotFit · DatabaseUnusable · ClaimingFailed · RunAbandoned · TurnTimeout
│   └── ModelRejected
│       ├── ModelAuthenticationFailed · ModelQuotaExhausted · ModelInvalidRequest · ModelRefused · AnswerTooLong
│       └── AnswerNotInFormat · ContextOverflow
└── TemporaryError
    ├── DatabaseUnavailable (DatabaseBusy · DatabaseFull)
    ├── NoWorkerAvailable · TurnLimitReached · SummaryLimitReached · DailyBudgetSpent · DailyBudgetReserved
    └── ModelUnavailable
        └── ModelRateLimited · ModelTimeout · AnswerIncomplete

`code` is the error's stable name in the API. The text says what is wrong, with the value, and what to do. It never
contains a secret, another user's text or internals of the service.
"""

import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from throughline.domain.prompt import Usage

# The exceptions inside an exception group, which says by itself only how many there are.
#
# Plugins raise groups where they use task groups, as clients of other services do: a 404 arrives inside of one or two.

MAX_FRAMES = 40
"""Stack frames kept for the log: enough to reach the service's own lines above those of libraries."""


def traceback_lines(error: BaseException) -> str:
    """Return the function names and line numbers of the error's traceback, innermost first, for the log.

    The error's text is left out, because it may contain a user's words.
    """
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))


MOST_CAUSES = 3
MOST_VISITED = 100
"""Most exceptions and groups looked at, so that a group of groups without end costs little."""


def causes_of(error: BaseException) -> tuple[BaseException, ...]:
    """Return the first exceptions that are no groups inside a group of any depth, `error` alone if it is no group."""
    waiting, found = [error], list[BaseException]()
    for _ in range(MOST_VISITED):
        if not waiting or len(found) == MOST_CAUSES:
            break
        first = waiting.pop()
        if isinstance(first, BaseExceptionGroup):
            waiting.extend(reversed(first.exceptions))
        else:
            found.append(first)
    return tuple(found) or (error,)


def only_cause_of(error: BaseException) -> BaseException:
    """Return the exception inside a group if there is one alone, else `error`."""
    causes = causes_of(error)
    return causes[0] if len(causes) == 1 else error


def class_names(error: BaseException) -> str:
    """Return the class of an exception, or the classes of those inside a group, separated by commas."""
    return ", ".join(dict.fromkeys(type(cause).__name__ for cause in causes_of(error)))


def class_and_text(error: BaseException) -> str:
    """Return class and text of an exception, or of those inside a group, separated by semicolons."""
    return "; ".join(dict.fromkeys(f"{type(cause).__name__}: {cause}" for cause in causes_of(error)))


class ThroughlineError(Exception):
    """Base class of every error that this service raises on purpose."""

    code: ClassVar[str] = "internal_error"
    usage: Usage | None = None
    """The usage of a failed model call, if the provider reported it."""

    provider_message: str = ""
    """What the model's provider itself said, cleaned, for operators only; '' if it said nothing. Never in `detail`."""

    def __init__(self, detail: str) -> None:
        """Keep `detail`, the sentence that is shown to users."""
        super().__init__(detail)
        self.detail = detail


class PermanentError(ThroughlineError):
    """An error that a retry of the same operation cannot avoid."""


class TemporaryError(ThroughlineError):
    """An error that a retry may avoid, after `delay_seconds` if known."""

    def __init__(self, detail: str, *, delay_seconds: float | None = None) -> None:
        """Keep `detail`, and the delay in seconds that the other system asked for, None if it asked for none."""
        super().__init__(detail)
        self.delay_seconds = delay_seconds


class InvalidInput(PermanentError):
    """A request has an unacceptable value; `field` is the dotted name of the request's field."""

    code = "invalid_input"

    def __init__(self, detail: str, *, field: str = "") -> None:
        super().__init__(detail)
        self.field = field


class NotFound(PermanentError):
    """The object does not exist or belongs to another user; both cases have the same text."""

    code = "not_found"


class NotAuthenticated(PermanentError):
    """The request has no API key, an unknown key or a revoked key."""

    code = "not_authenticated"


class NotAllowed(PermanentError):
    """The API key is valid but lacks the required scope."""

    code = "not_allowed"


class IdempotencyKeyReused(PermanentError):
    """The idempotency key was used before with a different request body."""

    code = "idempotency_key_reused"


class ExternalIdTaken(PermanentError):
    """Another session of the owner has the external id that a session was to get."""

    code = "external_id_taken"


class SessionBusy(PermanentError):
    """The session has an unfinished turn, run `run_id`, so the request was rejected."""

    code = "session_busy"

    def __init__(self, detail: str, *, run_id: str) -> None:
        super().__init__(detail)
        self.run_id = run_id


class SessionWaiting(SessionBusy):
    """A turn of the session, run `run_id`, waits for something else than the message that was sent."""


class BehindWaitingTurn(SessionBusy):
    """The message, run `run_id`, is stored and stands in line behind a turn that waits for something from outside."""

    code = "session_waiting"

    def __init__(self, detail: str, *, run_id: str, waiting_run_id: str) -> None:
        super().__init__(detail, run_id=run_id)
        self.waiting_run_id = waiting_run_id


class RunNotWaiting(PermanentError):
    """The run, or the call that the request names, no longer waits for anything from outside."""

    code = "run_not_waiting"


class ApprovalRequired(PermanentError):
    """A turn needs a person's approval, and the request that began it leaves no way to give it."""

    code = "approval_required"


class ConversationBranched(PermanentError):
    """A request changes earlier messages of the session that it names by its id. Messages of a session never change."""

    code = "conversation_branched"


class QueueFull(PermanentError):
    """The session has the maximum number of waiting messages: `limit`. `cap` is the name of the setting for it."""

    code = "queue_full"

    def __init__(self, detail: str, *, cap: str, limit: int) -> None:
        super().__init__(detail)
        self.cap = cap
        self.limit = limit


class OwnerQueueFull(QueueFull):
    """The owner's sessions together have the maximum number of waiting messages."""

    code = "owner_queue_full"


class SummaryConflict(PermanentError):
    """Another writer changed the session's summary first; this write stored nothing."""

    code = "summary_conflict"


class SummaryInProgress(PermanentError):
    """A summary of this session is already being written on demand; `summary_request_id` names that request."""

    code = "summary_in_progress"

    def __init__(self, detail: str, *, summary_request_id: str) -> None:
        super().__init__(detail)
        self.summary_request_id = summary_request_id


class LeaseLost(PermanentError):
    """This process no longer holds the claimed run, job or delivery: its fence has changed, or it has ended.

    The process must stop the work and write nothing more.
    """

    code = "lease_lost"


class SettingInvalid(PermanentError):
    """A setting is missing or malformed, or contradicts another setting."""

    code = "setting_invalid"


class AgentInvalid(PermanentError):
    """An agent definition cannot be used; the text names file, field, value and the allowed values.

    `by_file` has the errors of a folder's files by the files' names; it is empty for other errors.
    """

    code = "agent_invalid"
    by_file: Mapping[str, str] = MappingProxyType({})


class PromptCannotFit(PermanentError):
    """System prompt, tools and reserve fill the model's window and leave no space for a conversation."""

    code = "prompt_cannot_fit"


class DatabaseUnusable(PermanentError):
    """The database cannot be used as it is: too old, wrong schema revision, no permission, or bad address."""

    code = "database_unusable"


class DatabaseUnavailable(TemporaryError):
    """The database did not answer, or all its connections are in use."""

    code = "database_unavailable"


class DatabaseBusy(DatabaseUnavailable):
    """The database is reachable but did not finish the statement in time; a retry may take as long."""


class DatabaseFull(DatabaseUnavailable):
    """The database has no disk space, memory or connection left for the operation."""


class ClaimingFailed(PermanentError):
    """The claim loop of this process has crashed: the process takes no more turns and must be restarted."""

    code = "claiming_broke"


class NoWorkerAvailable(TemporaryError):
    """No worker took the run in time; the message is stored and will be answered later."""

    code = "no_worker_available"


class DailyBudgetSpent(TemporaryError):
    """The user has spent the agent's daily budget, which is renewed after `delay_seconds`, at midnight UTC."""

    code = "daily_budget_spent"


class DailyBudgetReserved(TemporaryError):
    """What is left of the user's daily budget is reserved for turns that are running; one that ends frees its rest."""

    code = "daily_budget_reserved"


class TurnLimitReached(TemporaryError):
    """The process has no free slot, or the share of slots for work other than turns is used up. Nothing was done."""

    code = "turns_taken"


class SummaryLimitReached(TemporaryError):
    """The user has the maximum number of on-demand summaries under way. Nothing was done."""

    code = "owner_summaries_taken"


class ModelRejected(PermanentError):
    """The model provider rejected the request; the same request would be rejected again."""

    code = "model_rejected"


class ModelAuthenticationFailed(ModelRejected):
    """The provider does not accept the API key, or the key may not use this model."""

    code = "model_authentication_failed"


class ModelQuotaExhausted(ModelRejected):
    """The provider account has no credit or quota left."""

    code = "model_quota_exhausted"


class ModelInvalidRequest(ModelRejected):
    """The provider says the request is malformed, or does not know the model."""

    code = "model_invalid_request"


class ModelRefused(ModelRejected):
    """The model or the provider's filter declined to answer this content."""

    code = "model_refused"


class AnswerTooLong(ModelRejected):
    """The model's answer exceeded the allowed size."""

    code = "answer_too_long"


class AnswerNotInFormat(ModelRejected):
    """The answer does not fit the response format, even after the model was asked again. Stored with the run."""

    code = "answer_not_in_format"


class ContextOverflow(ModelRejected):
    """The provider says the prompt is longer than the model's window.

    `window_tokens` and `prompt_tokens` are the numbers that the provider gave, None if it gave none that are plausible.
    """

    code = "context_overflow"

    def __init__(self, detail: str, *, window_tokens: int | None = None, prompt_tokens: int | None = None) -> None:
        super().__init__(detail)
        self.window_tokens = window_tokens
        self.prompt_tokens = prompt_tokens


class ModelUnavailable(TemporaryError):
    """The provider failed temporarily: overload, server error or broken connection."""

    code = "model_unavailable"


class ModelRateLimited(ModelUnavailable):
    """The provider's rate limit was exceeded."""

    code = "model_rate_limited"


class ModelTimeout(ModelUnavailable):
    """The provider sent no data for longer than the time limit."""

    code = "model_timeout"


class AnswerIncomplete(ModelUnavailable):
    """The model's answer is empty or ended without a finish reason, so it is not usable."""

    code = "answer_incomplete"


class RunAbandoned(PermanentError):
    """The run was attempted the maximum number of times, and each time its process died; it is not tried again."""

    code = "run_abandoned"


class GraphFailed(PermanentError):
    """The agent's own graph raised an error, ended without an answer, or has a state that cannot be stored."""

    code = "graph_failed"


class GraphWaitExpired(PermanentError):
    """A question of the agent's own graph was not answered in time, and the graph cannot go on without an answer."""

    code = "graph_wait_expired"


class TurnTimeout(PermanentError):
    """The turn reached its deadline before it had an answer."""

    code = "turn_timeout"


def provider_words(error: BaseException) -> dict[str, str]:
    """Return the log field `provider_message` of an error; no field if the provider said nothing."""
    said = error.provider_message if isinstance(error, ThroughlineError) else ""
    return {"provider_message": said} if said else {}
