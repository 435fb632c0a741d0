"""Problems with what else is there: conflicts with stored objects and other turns, queues that are full, budgets."""

from collections.abc import Mapping

from throughline.http.problem_kinds.kind import ProblemKind

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
