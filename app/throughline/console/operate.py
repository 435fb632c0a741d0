"""The pages for operators, whose keys have the scope `operate`: processes and queues, runs, keys."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from throughline.console.page import PageOperator, PageRoute, show
from throughline.db.runs.all_runs import LAST_SEQ, AllRunsQuery
from throughline.domain.keys import DEFAULT_SCOPES, Scope
from throughline.domain.run import RunStatus
from throughline.domain.service_status import AgentFiles
from throughline.http.call import PAGES
from throughline.http.prefix_router import PrefixRouter
from throughline.http.route_errors import PROBLEM_KINDS

LISTED = 50
router = PrefixRouter(prefix=PAGES, include_in_schema=False, route_class=PageRoute)


@router.get("/operate")
async def get_state(request: Request, call: PageOperator) -> Response:
    """Return the page of the service's state: processes, queues, side jobs, circuit breakers and agents."""
    state = await call.services.read_status()
    files = state.agent_files or AgentFiles((), None)
    agents = [(call.services.agents.get(origin.agent), origin) for origin in files.agents]
    values = {"state": state, "agents": agents, "refused": files.refused}
    return show(request, "operate.html", call, values)


class Period(StrEnum):
    """The times of submission among which an operator chooses."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"


PERIODS = {
    Period.HOUR: ("last hour", timedelta(hours=1)),
    Period.DAY: ("last 24 hours", timedelta(days=1)),
    Period.WEEK: ("last 7 days", timedelta(days=7)),
}


@router.get("/operate/runs")
async def get_runs(
    request: Request,
    call: PageOperator,
    status: RunStatus | None = None,
    last: Period | None = None,
    cursor: Annotated[int | None, Query(ge=1, le=LAST_SEQ)] = None,
) -> Response:
    """Return the page of the runs of all users, the newest first; with `last` those that were submitted since then."""
    since = None if last is None else call.services.clock.now() - PERIODS[last][1]
    page = await call.services.database.all_runs.list(AllRunsQuery(LISTED, cursor, status, since=since))
    values = {"page": page, "status": status, "last": last, "kinds": PROBLEM_KINDS}
    choices = {"statuses": list(RunStatus), "periods": PERIODS, "address": runs_address}
    return show(request, "runs.html", call, {**values, **choices})


def runs_address(**asked: object) -> str:
    """Return the relative address of the page of runs with these filters; those that are None or empty are left out."""
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"operate/runs?{query}" if query else "operate/runs"


@router.get("/operate/keys")
async def get_keys(request: Request, call: PageOperator) -> Response:
    """Return the page of the API keys, the valid ones first."""
    keys = sorted(
        await call.services.database.keys.list(), key=lambda key: (key.revoked_at is not None, key.created_at)
    )
    values = {"keys": keys, "scopes": [scope for scope in Scope if scope in call.principal.scopes]}
    return show(request, "keys.html", call, {**values, "usual": DEFAULT_SCOPES})
