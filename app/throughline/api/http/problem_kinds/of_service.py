"""Problems of the service itself: its processes, settings, agents, database and capacity."""

from collections.abc import Mapping

from throughline.api.http.problem_kinds.kind import ProblemKind

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
