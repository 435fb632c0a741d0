"""Problems of models and of their providers' servers."""

from collections.abc import Mapping

from throughline.api.http.problem_kinds.kind import ProblemKind

MODEL_KINDS: Mapping[str, ProblemKind] = {
    "model_refused": ProblemKind(
        422,
        "The model declined this content",
        cause="The model or the provider's filter declined the content.",
        remedy="Change the message.",
    ),
    "model_rejected": ProblemKind(
        502,
        "The model provider refused the request",
        cause="The provider refused the request.",
        remedy="Check the agent's model: `throughline models check AGENT`.",
        page="guides/check-a-model.md",
    ),
    "model_authentication_failed": ProblemKind(
        502,
        "The model provider does not accept the service's key",
        cause="The provider does not accept the service's key for this model.",
        remedy="Check the key.",
        page="guides/models.md",
    ),
    "model_quota_exhausted": ProblemKind(
        502,
        "The model provider account has no quota left",
        cause="The provider account has no credit or quota.",
        remedy="Check its billing.",
    ),
    "model_invalid_request": ProblemKind(
        502,
        "The model provider says the request is invalid",
        cause="The provider refuses the request, or does not know the model.",
        remedy="Do what `detail` says: it names cause and remedy if they are known.",
        page="operations/model-refusals.md",
    ),
    "context_overflow": ProblemKind(
        502,
        "The prompt is longer than the model's window",
        cause="The provider says that the prompt is longer than its window.",
        remedy="Check the window of the agent's model.",
        page="guides/models.md#the-context-window",
    ),
    "answer_too_long": ProblemKind(
        502,
        "The model's answer was too long",
        cause="The answer exceeded a limit.",
        remedy="Ask for less at a time.",
        page="reference/limits.md#what-a-provider-may-send",
    ),
    "answer_not_in_format": ProblemKind(
        502,
        "The model did not answer in the response format",
        cause="The answer did not fit the response format, asked twice. `message` is the last answer.",
        remedy="Simplify the schema, or use another model.",
        page="guides/overrides.md#answers-as-json",
    ),
    "answer_incomplete": ProblemKind(
        502,
        "The model's answer was incomplete",
        cause="The answer broke off or was empty.",
        remedy="Try again.",
    ),
    "answer_restarted": ProblemKind(
        503,
        "The answer was begun again",
        cause="A streamed chat completion was begun again after a failure. It differs from what was sent.",
        remedy="Send the request again.",
    ),
    "model_unavailable": ProblemKind(
        503,
        "The model provider is not available",
        cause="The provider is overloaded or failed, or the connection broke.",
        remedy="Try again.",
    ),
    "model_rate_limited": ProblemKind(
        503,
        "The model provider limits the rate of requests",
        cause="The provider asks for fewer requests.",
        remedy="Try again after `Retry-After`.",
    ),
    "model_timeout": ProblemKind(
        504,
        "The model did not answer in time",
        cause="The provider sent nothing for `MODEL_IDLE_TIMEOUT_SECONDS`.",
        remedy="Try again.",
    ),
}
