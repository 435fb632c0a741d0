"""All kinds of problems by their error code: the only table of HTTP statuses."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """HTTP status, title, cause and remedy of an error code.

    `cause` and `remedy` are sentences in which only `code` is marked up. `page` is the address below `docs/` of the
    page that says more, '' if there is none.
    """

    status: int
    title: str
    cause: str
    remedy: str
    page: str = ""


RUN_CANCELLED = "run_cancelled"
CONFLICT_KINDS: Mapping[str, ProblemKind] = {
    "idempotency_key_reused": ProblemKind(
        409,
        "The idempotency key was used for another request",
        cause="The key was used for another request.",
        remedy="Take a new key.",
        page="reference/rest-api.md#idempotency-keys",
    ),
    "external_id_taken": ProblemKind(
        409,
        "Another session has this external id",
        cause="Another session of the user has this external id.",
        remedy="Take another id, or change that session first. An import takes one with `?external_id=`.",
        page="guides/find-sessions.md",
    ),
    "session_busy": ProblemKind(
        409,
        "A turn of this session is running",
        cause="A turn of the session is running or unfinished. `run_id` names it.",
        remedy="Wait for it or cancel it.",
        page="reference/limits.md#a-busy-session",
    ),
    "session_waiting": ProblemKind(
        409,
        "A turn of this session waits",
        cause="The message is stored as run `run_id`, and is answered after `waiting_run_id`, which waits for "
        "something from outside.",
        remedy="Resume or cancel that run. Do not send the message again.",
        page="guides/waiting-runs.md",
    ),
    "run_not_waiting": ProblemKind(
        409,
        "The run does not wait for this",
        cause="The run, or a call that you named, does not wait any more.",
        remedy="Read the run.",
        page="guides/waiting-runs.md",
    ),
    "approval_required": ProblemKind(
        409,
        "The turn needs an approval",
        cause="The turn needs an approval, and the chat completion names no session in which it could wait.",
        remedy="Name a session.",
        page="guides/waiting-runs.md",
    ),
    "conversation_branched": ProblemKind(
        409,
        "The session's messages are others",
        cause="A chat completion changes earlier messages of a session, or repeats its newest.",
        remedy="Send the new message alone, or name another session.",
        page="guides/chat-programs.md",
    ),
    "summary_conflict": ProblemKind(
        409,
        "The summary was changed meanwhile",
        cause="Another writer changed the summary first. Nothing was stored.",
        remedy="Read the summary and try again.",
    ),
    "summary_in_progress": ProblemKind(
        409,
        "A summary of this session is being written",
        cause="A summary on demand of this session is under way. `summary_request_id` names it.",
        remedy="Wait for it.",
        page="reference/limits.md#summaries-on-demand",
    ),
    RUN_CANCELLED: ProblemKind(
        409,
        "The run was cancelled",
        cause="The run was cancelled before it had an answer. The message is kept.",
        remedy="Send another message to go on.",
    ),
    "queue_full": ProblemKind(
        429,
        "Too many messages are waiting in this session",
        cause="`MAX_QUEUED_PER_SESSION` messages wait in the session.",
        remedy="Wait for answers, then send again.",
        page="reference/limits.md#a-busy-session",
    ),
    "owner_queue_full": ProblemKind(
        429,
        "Too many of your messages are waiting",
        cause="`MAX_QUEUED_PER_OWNER` messages of the user wait in all sessions.",
        remedy="Wait for answers, then send again.",
        page="reference/limits.md#messages-and-turns-of-one-user",
    ),
    "daily_budget_spent": ProblemKind(
        429,
        "The budget of the day is spent",
        cause="The user has spent the daily budget of the agent.",
        remedy="Send again after 00:00 UTC, when it is renewed.",
        page="operations/costs.md#budgets",
    ),
    "daily_budget_reserved": ProblemKind(
        429,
        "The rest of the day's budget is reserved",
        cause="Turns of the user that are running are expected to use the rest of the agent's daily budget.",
        remedy="Send again once one of them has ended.",
        page="operations/costs.md#budgets",
    ),
    "owner_summaries_taken": ProblemKind(
        429,
        "Too many of your summaries are being written",
        cause="The user has four summaries on demand under way.",
        remedy="Try again later.",
        page="reference/limits.md#summaries-on-demand",
    ),
}


SERVICE_KINDS: Mapping[str, ProblemKind] = {
    "internal_error": ProblemKind(
        500,
        "An unexpected error occurred",
        cause="An unexpected error. Nothing stored is lost.",
        remedy="Try again, and read the log of the service.",
    ),
    "lease_lost": ProblemKind(
        500,
        "The run moved to another process",
        cause="Another process has taken over the run.",
        remedy="Ask for the run: `GET /v1/runs/{id}`.",
    ),
    "run_abandoned": ProblemKind(
        500,
        "The run could not be finished",
        cause="The run was started three times and no process finished it.",
        remedy="Send the message again, perhaps changed.",
    ),
    "setting_invalid": ProblemKind(
        500,
        "The service is not configured for this",
        cause="A setting is absent, malformed or contradicts another. `detail` names it.",
        remedy="Correct the setting and start the service again.",
        page="reference/settings.md",
    ),
    "agent_invalid": ProblemKind(
        500,
        "The agent cannot be used",
        cause="An agent file cannot be used.",
        remedy="Correct the file. `detail` names file, field, value and what is allowed.",
        page="reference/agent-file.md",
    ),
    "prompt_cannot_fit": ProblemKind(
        500,
        "The agent leaves no room for a conversation",
        cause="System prompt, tools and reserve leave no space in the window.",
        remedy="Shorten them or set a larger `context.window`.",
        page="guides/models.md#the-context-window",
    ),
    "claiming_broke": ProblemKind(
        500,
        "The process runs no more turns",
        cause="The process takes no more turns and has ended.",
        remedy="Have its supervisor start another.",
        page="operations/runbook.md",
    ),
    "database_unusable": ProblemKind(
        503,
        "The database cannot be used",
        cause="The server is too old, the schema has another revision, a permission is absent or the address wrong.",
        remedy="Do what `detail` or the log says.",
        page="operations/postgres.md",
    ),
    "database_unavailable": ProblemKind(
        503,
        "The database does not answer",
        cause="The database did not answer, is full, or all connections are busy.",
        remedy="Try again after `Retry-After`.",
        page="operations/postgres.md",
    ),
    "no_worker_available": ProblemKind(
        503,
        "No worker started the run",
        cause="No worker was at work for `NO_WORKER_TIMEOUT_SECONDS`. The message is kept.",
        remedy="Start a worker: `throughline worker`.",
        page="reference/limits.md#waiting-for-a-worker",
    ),
    "turns_taken": ProblemKind(
        503,
        "All turn slots are in use",
        cause="A summary on demand needs a slot of an open turn, and none is free.",
        remedy="Try again later.",
        page="reference/limits.md#summaries-on-demand",
    ),
    "service_stopping": ProblemKind(
        503,
        "The service is stopping",
        cause="The process stops. The run continues at another process.",
        remedy="Ask for the run: `GET /v1/runs/{id}`.",
    ),
    "bodies_held": ProblemKind(
        503,
        "Too many large requests are in progress",
        cause="Large requests hold all of `MAX_HELD_BODY_BYTES`.",
        remedy="Try again later.",
        page="reference/limits.md#large-bodies",
    ),
    "too_many_connections": ProblemKind(
        503,
        "The service has too many connections",
        cause="`MAX_CONNECTIONS` connections, or `MAX_WEBSOCKETS` WebSockets, are open.",
        remedy="Try again later.",
        page="reference/limits.md#connections",
    ),
    "turn_timeout": ProblemKind(
        504,
        "The turn took too long",
        cause="The model calls of the turn took longer than `TURN_TIMEOUT_SECONDS`.",
        remedy="Send the message again.",
    ),
}


REQUEST_KINDS: Mapping[str, ProblemKind] = {
    "malformed_body": ProblemKind(
        400,
        "The body is not JSON",
        cause="The body is not JSON in UTF-8, or it is nested too deeply.",
        remedy="Send a JSON object.",
    ),
    "malformed_request": ProblemKind(
        400,
        "The request is not HTTP",
        cause="The bytes that arrived are no HTTP request.",
        remedy="Correct the client.",
    ),
    "not_authenticated": ProblemKind(
        401,
        "A valid key is required",
        cause="The key is absent, unknown or revoked, or an access token has expired.",
        remedy="Send a valid key or a new access token.",
        page="operations/keys-and-users.md",
    ),
    "not_allowed": ProblemKind(
        403,
        "The key lacks the required scope",
        cause="The key lacks the scope, or an access token does not serve this route.",
        remedy="Create a key with that scope, or call the route with a key.",
        page="operations/keys-and-users.md#scopes",
    ),
    "origin_refused": ProblemKind(
        403,
        "Requests of this origin are not served",
        cause="The origin of the page is not listed. Or no API key exists: then only this machine is served.",
        remedy="Add the origin to `CORS_ORIGINS`. Or call the service as `localhost`, or create a key.",
        page="guides/browsers.md",
    ),
    "not_found": ProblemKind(
        404,
        "Not found",
        cause="The object does not exist or belongs to somebody else. Or the session's agent was removed.",
        remedy="Check the id, and that the key is its owner's.",
    ),
    "model_not_found": ProblemKind(
        404,
        "No such model",
        cause="No agent has the name that a request in OpenAI's form gives as `model`.",
        remedy="Take a name that `GET /v1/models` lists.",
        page="guides/openai.md",
    ),
    "previous_response_not_found": ProblemKind(
        404,
        "No such response to continue",
        cause="The response to continue is missing, deleted or was not stored.",
        remedy="Send the conversation itself as `input`.",
        page="guides/openai.md",
    ),
    "route_not_found": ProblemKind(
        404,
        "No such route",
        cause="There is no such route.",
        remedy="Take a route that `/openapi.json` lists.",
    ),
    "method_not_allowed": ProblemKind(
        405,
        "Method not allowed",
        cause="The route has other methods.",
        remedy="Use a method that the header `Allow` names.",
    ),
    "body_too_slow": ProblemKind(
        408,
        "The body did not arrive in time",
        cause="The body did not arrive within 30 seconds.",
        remedy="Send the request again.",
    ),
    "head_too_slow": ProblemKind(
        408,
        "The request did not arrive in time",
        cause="The request's head did not arrive within 15 seconds.",
        remedy="Send the request again.",
    ),
    "body_too_large": ProblemKind(
        413,
        "The body is too large",
        cause="The body is larger than `MAX_BODY_BYTES`, or an import is larger than `MAX_IMPORT_BYTES`.",
        remedy="Send less at a time, or raise the setting.",
        page="reference/limits.md#large-bodies",
    ),
    "unsupported_media_type": ProblemKind(
        415,
        "The body must be plain JSON",
        cause="The body has another content type, is compressed, or is not in UTF-8.",
        remedy="Send `Content-Type: application/json` in UTF-8, not compressed.",
    ),
    "invalid_input": ProblemKind(
        422,
        "The request is not valid",
        cause="A value is not acceptable. `errors` names each field.",
        remedy="Correct the named fields.",
    ),
    "head_too_large": ProblemKind(
        431,
        "The request's headers are too large",
        cause="The head or the trailers have more than 64 kB or 256 headers.",
        remedy="Send fewer or shorter headers.",
        page="reference/limits.md#connections",
    ),
}


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


KINDS_BY_SUBJECT: Mapping[str, Mapping[str, ProblemKind]] = {
    "The request": REQUEST_KINDS,
    "Conflicts and queues": CONFLICT_KINDS,
    "The service": SERVICE_KINDS,
    "The model": MODEL_KINDS,
}
"""The kinds by the headings of the reference of errors."""

PROBLEM_KINDS: Mapping[str, ProblemKind] = {
    code: kind for kinds in KINDS_BY_SUBJECT.values() for code, kind in kinds.items()
}
