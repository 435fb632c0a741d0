"""Runs as tasks: the extension of revision 2026-07-28 with which a client follows a call that takes long."""

from datetime import datetime

from pydantic import BaseModel, Field

from throughline.domain.errors import NotFound
from throughline.domain.keys import Scope
from throughline.domain.run import Run, RunStatus
from throughline.http.call import run_id_of
from throughline.mcp.ask_agent import show_turn, tell_wait
from throughline.mcp.protocol import INVALID_PARAMS, MISSING_CAPABILITY, TASKS, ProtocolError
from throughline.mcp.request import NO_META, RUN, McpRequest
from throughline.wire.json_shape import JsonDict

POLL_MILLISECONDS = 2_000
STATUSES = {
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "completed",  # with a tool's error as its result; `failed` is for errors of the protocol
    RunStatus.CANCELLED: "cancelled",
}
"""Status of a task by that of its run. All other runs are being worked on."""


class TaskParameters(BaseModel):
    """The task that a request names: the id of a run."""

    model_config = NO_META

    task_id: str = Field(alias="taskId")


def task_json(run: Run) -> JsonDict:
    """Return the run as a task. Runs are kept as long as their session, so that a task has no time to live."""
    shown: JsonDict = {
        "taskId": str(run.id),
        "status": STATUSES.get(run.status, "working"),
        "createdAt": run.created_at.isoformat(),
        "lastUpdatedAt": _updated_at(run).isoformat(),
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    if run.status is RunStatus.WAITING:
        shown["statusMessage"] = tell_wait(run)
    return shown


def _updated_at(run: Run) -> datetime:
    return run.finished_at or run.started_at or run.created_at


async def get_task(asked: McpRequest) -> JsonDict:
    """Return the task, with the tool's result once it is completed."""
    run = await _find(asked)
    call = await asked.reach_run(str(run.id))
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
    run = await _find(asked)
    call = await asked.reach(Scope.WRITE, "POST", f"{RUN}/cancel", run_id=str(run.id))
    await call.services.database.runs.request_cancel(call.owner_id, run.id)
    return {}


async def _find(asked: McpRequest) -> Run:
    """Return the run of the request's task. Raises ProtocolError if the client or the task is unknown."""
    if not asked.message.takes_tasks:
        needed: JsonDict = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise ProtocolError(MISSING_CAPABILITY, f"Declare the extension {TASKS} in each request.", needed)
    task_id = asked.read(TaskParameters).task_id
    try:
        call = await asked.reach_run(task_id)
        return await call.services.database.runs.get_run(call.owner_id, run_id_of(task_id))
    except NotFound:
        raise ProtocolError(INVALID_PARAMS, "There is no such task.", {"taskId": task_id}) from None
