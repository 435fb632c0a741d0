"""Routes for operators, whose keys have the scope `operate`: the state of the whole service, and the runs of all users.

They show no texts of users.
"""

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Query, Response
from pydantic import Field

from throughline.db.runs.all_runs import LAST_SEQ, AllRunsQuery
from throughline.domain.errors import InvalidInput
from throughline.domain.run import ListedRun, RunStatus
from throughline.http.call import Operator
from throughline.http.fields import Moment, QueryParameters
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import PROBLEM_KINDS
from throughline.wire.events import ErrorForOperators, ListedRunOut, ListedRunPage
from throughline.wire.json_shape import JsonDict
from throughline.wire.service import ServiceStatusOut, status_json

status_router = PrefixRouter(prefix="/v1/status", tags=["operators"])


@status_router.get("", responses={HTTPStatus.OK: {"model": ServiceStatusOut}})
async def get_status(call: Operator) -> Response:
    """Return the state of the whole service: processes, queues, held runs, side jobs, circuit breakers, agent files."""
    return JsonResponse(status_json(await call.services.read_status()))


class ListAllRuns(QueryParameters):
    """A page of the runs of all users, and filters for it."""

    status: RunStatus | None = None
    session_id: UUID | None = None
    since: Moment | None = Field(None, description="only runs that were submitted at this time or later")
    until: Moment | None = Field(None, description="only runs that were submitted before this time")
    limit: int = Field(50, ge=1, le=200)
    cursor: int | None = Field(None, ge=1, le=LAST_SEQ, description="`next_cursor` of the previous page")


runs_router = PrefixRouter(prefix="/v1/runs", tags=["operators"])


@runs_router.get("", responses={HTTPStatus.OK: {"model": ListedRunPage}})
async def list_all_runs(call: Operator, asked: Annotated[ListAllRuns, Query()]) -> Response:
    """List the runs of all users, the last submitted first."""
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise InvalidInput(f"Must be before `until`, {asked.until.isoformat()}.", field="since")
    page = await call.services.database.all_runs.list(
        AllRunsQuery(asked.limit, asked.cursor, asked.status, asked.session_id, asked.since, asked.until)
    )
    return JsonResponse({"data": [_run_json(run) for run in page.items], "next_cursor": page.next_cursor})


def _run_json(run: ListedRun) -> JsonDict:
    shown = ListedRunOut.render(run)
    if run.error is None:
        return shown
    kind = PROBLEM_KINDS.get(run.error.type)
    explained: JsonDict = {"cause": kind.cause if kind else None, "remedy": kind.remedy if kind else None}
    return {**shown, "error": {**ErrorForOperators.render(run.error), **explained}}
