"""Route that reports what model calls used and cost."""

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field, field_validator

from throughline.domain.errors import InvalidInput, NotAllowed
from throughline.domain.usage_report import NO_KEYS, UsageKey, UsageQuery, keys_of
from throughline.http.admitted_request import Reader
from throughline.http.fields import Moment
from throughline.http.query_parameters import QueryParameters
from throughline.http.sse import JsonResponse
from throughline.wire.service import UsageReportOut, group_json

MOST_DAYS = 3_660
EARLIEST = datetime.min.replace(tzinfo=UTC)
KEYS = ", ".join(key.value for key in UsageKey)
router = APIRouter(prefix="/v1/usage", tags=["usage"])


class AskedUsage(QueryParameters):
    """Fields to group by, a time, and whose calls."""

    group_by: str = Field(
        UsageKey.DAY.value, max_length=100, description=f"fields, separated by commas: {KEYS}; {NO_KEYS}: one sum"
    )
    days: int = Field(
        30, ge=1, le=MOST_DAYS, description="days of UTC, that of `until` included; not used with `since`"
    )
    since: Moment | None = Field(None, description="only calls at this time or later")
    until: Moment | None = Field(None, description="only calls before this time; default: now")
    all_users: bool = Field(default=False, description="calls of all users; needs a key with the scope `operate`")

    @field_validator("group_by")
    @classmethod
    def _check_keys(cls, value: str) -> str:
        keys_of(value)
        return value


@router.get("", responses={HTTPStatus.OK: {"model": UsageReportOut}})
async def report_usage(call: Reader, asked: Annotated[AskedUsage, Query()]) -> Response:
    """Return the tokens and the costs of model calls in groups: answers, summaries and embedded texts.

    The calls are the caller's, or those of all users.
    """
    if asked.all_users and not call.is_operator:
        raise NotAllowed("`all_users` needs a key with the scope `operate`.")
    since, until = _times(asked, call.services.clock.now())
    owner_id = None if asked.all_users else call.principal.user_id
    groups = await call.services.database.usage.report(UsageQuery(owner_id, since, until, keys_of(asked.group_by)))
    return JsonResponse({
        "since": since.isoformat(),
        "until": until.isoformat(),
        "data": [group_json(group) for group in groups],
    })


def _times(asked: AskedUsage, now: datetime) -> tuple[datetime, datetime]:
    """Return both ends of the time; the default beginning is the start of a day of UTC. Raises InvalidInput."""
    until = asked.until or now
    since = asked.since
    if since is None:
        last = until - min(datetime.resolution, until - EARLIEST)  # a time at midnight ends the day before
        day = last.replace(hour=0, minute=0, second=0, microsecond=0)
        since = day - min(timedelta(days=asked.days - 1), day - EARLIEST)
    if since >= until:
        raise InvalidInput(f"Must be before `until`, {until.isoformat()}.", field="since")
    return since, until
