"""Encoding of run events for REST and SSE: server-sent events, and problems for failed or cancelled runs."""

import math
from datetime import datetime

from fastapi import Response

from throughline.api.http.problem_documents import problem
from throughline.api.http.problem_kinds.of_conflicts import RUN_CANCELLED
from throughline.api.http.responses import json_line
from throughline.domain.errors import DailyBudgetSpent
from throughline.domain.events import RunEnded, RunEvent
from throughline.domain.json_types import JsonValue
from throughline.domain.run import RunStatus
from throughline.domain.usage_report import until_next_day
from throughline.wire.events import UNKNOWN_ERROR, event_json
from throughline.wire.messages import MessageOut
from throughline.wire.runs import run_json


def render_event(event: RunEvent) -> bytes:
    """Return one run event as a server-sent event: id, event name, and JSON in one line."""
    data = json_line(event_json(event.event))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.value.encode(), data)


def turn_problem(ended: RunEnded, *, for_operator: bool) -> Response:
    """Return the problem document of a run that failed or was cancelled.

    It has the answer that was kept, if there is one. It contains the provider's own message only if `for_operator`, and
    only if the provider said anything.
    """
    run = run_json(ended.run, for_operator=for_operator)
    more: dict[str, JsonValue] = {"run_id": str(ended.run.id), "run": run}
    if ended.run.status is RunStatus.CANCELLED:
        more["message"] = None if ended.answer is None else MessageOut.render(ended.answer)
        return problem(RUN_CANCELLED, "The run was cancelled before it had an answer. The message is kept.", more=more)
    error = ended.run.error or UNKNOWN_ERROR
    if ended.answer is not None:
        more["message"] = MessageOut.render(ended.answer)
    if for_operator and error.provider_message:
        more["provider_message"] = error.provider_message
    return problem(error.type, error.detail, more=more, headers=_retry_after(error.type, ended.run.finished_at))


def _retry_after(error_type: str, finished_at: datetime | None) -> dict[str, str]:
    """Return the header for a spent daily budget, which is renewed at midnight; the others have a usual one."""
    if error_type != DailyBudgetSpent.code or finished_at is None:
        return {}
    return {"Retry-After": str(math.ceil(until_next_day(finished_at).total_seconds()))}
