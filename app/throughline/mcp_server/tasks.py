"""Runs as tasks: the extension of revision 2026-07-28 with which a client follows a call that takes long."""

from throughline.domain.errors import NotFound
from throughline.domain.keys import Scope
from throughline.domain.run import Run, RunStatus
from throughline.http.call import Call, run_id_of
from throughline.mcp_server.ask_agent import describe_wait, show_turn
from throughline.mcp_server.protocol import INVALID_PARAMS, MISSING_CAPABILITY, RUN, TASKS, McpRequest, ProtocolError
from throughline.wire.json_shape import JsonDict

POLL_MILLISECONDS = 2_000
STATUSES = {
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "completed",  # with a tool's error as its result; `failed` is for errors of the protocol
    RunStatus.CANCELLED: "cancelled",
}
"""Status of a task by that of its run. All other runs are being worked on."""


def task_json(run: Run) -> JsonDict:
    """Return the run as a task. Runs are kept as long as their session, so that a task has no time to live."""
    shown: JsonDict = {
        "taskId": str(run.id),
        "status": STATUSES.get(run.status, "working"),
        "createdAt": run.created_at.isoformat(),
        "lastUpdatedAt": (run.finished_at or run.started_at or run.created_at).isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    return {**shown, "statusMessage": describe_wait(run)} if run.status is RunStatus.WAITING else shown


async def get_task(asked: McpRequest) -> JsonDict:
    """Return the task, with the tool's result once it is completed."""
    call, run = await _find(asked)
    shown = task_json(run)
    if shown["status"] == "completed":
        shown["result"] = {**(await show_turn(call, run)).render(), "resultType": "complete"}
    return shown


async def update_task(asked: McpRequest) -> JsonDict:
    """Acknowledge answers of the client. None is asked for: a waiting run is resumed by a person, over REST."""
    await _find(asked)
    return {}


async def cancel_task(asked: McpRequest) -> JsonDict:
    """Ask the run to stop; one that has ended stays as it is."""
    _, run = await _find(asked)
    call = await asked.authorize(Scope.WRITE, "POST", f"{RUN}/cancel", run_id=str(run.id))
    await call.services.database.runs.request_cancel(call.owner_id, run.id)
    return {}


async def _find(asked: McpRequest) -> tuple[Call, Run]:
    """Return the run of the request's task. Raises ProtocolError for an unknown task or a client without tasks."""
    if not asked.takes_tasks:
        needed: JsonDict = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise ProtocolError(MISSING_CAPABILITY, f"Declare the extension {TASKS} in each request.", needed)
    task_id = asked.text("taskId")
    try:
        call = await asked.authorize_run(task_id)
        return call, await call.services.database.runs.get_run(call.owner_id, run_id_of(task_id))
    except NotFound:
        raise ProtocolError(INVALID_PARAMS, "There is no such task.", {"taskId": task_id}) from None
