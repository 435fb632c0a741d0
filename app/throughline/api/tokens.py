"""Routes for a user: access tokens for browsers, what model calls used and cost, and the user's erasure."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, Field, field_validator

from throughline.db.statements.rows import session_not_found
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import InvalidInput, NotAllowed, NotFound
from throughline.domain.keys import TOKEN_SCOPES, NewToken, Scope
from throughline.domain.message import clean_text
from throughline.domain.usage_report import NO_KEYS, UsageKey, UsageQuery, keys_of
from throughline.http.body import read_body
from throughline.http.call import (
    Call,
    KeyHolder,
    Reader,
    SharedSessions,
    Writer,
    dependencies_of,
    session_id_of,
)
from throughline.http.documents import described, response_headers
from throughline.http.fields import STRICT, Moment, QueryParameters
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import codes
from throughline.wire.data_age import DATA_AS_OF, age_headers
from throughline.wire.service import AccessTokenOut, ErasedUserOut, UsageReportOut, group_json

MOST_DAYS = 3_660
EARLIEST = datetime.min.replace(tzinfo=UTC)
KEYS = ", ".join(key.value for key in UsageKey)
usage_router = PrefixRouter(prefix="/v1/usage", tags=["usage"])


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


@usage_router.get("", responses={HTTPStatus.OK: {"model": UsageReportOut, "headers": response_headers(DATA_AS_OF)}})
async def report_usage(call: Reader, asked: Annotated[AskedUsage, Query()]) -> Response:
    """Return the tokens and the costs of model calls in groups: answers, summaries and embedded texts.

    The calls are the caller's, or those of all users.
    """
    if asked.all_users and not call.is_operator:
        raise NotAllowed("`all_users` needs a key with the scope `operate`.")
    since, until = _times(asked, call.services.clock.now())
    owner_id = None if asked.all_users else call.principal.user_id
    query = UsageQuery(owner_id, since, until, keys_of(asked.group_by))
    reading = call.services.database.reads.begin()
    groups = await reading.run(lambda each: each.usage.report(query))
    shown = {
        "since": since.isoformat(),
        "until": until.isoformat(),
        "data": [group_json(group) for group in groups],
    }
    return JsonResponse(shown, headers=age_headers(reading.tell_age()))


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


users_router = PrefixRouter(prefix="/v1/users", tags=["users"])


@users_router.delete(
    "/{name:path}",
    responses={HTTPStatus.OK: {"model": ErasedUserOut}},
    openapi_extra=described(errors=codes(NotFound)),
)
async def erase_user(
    request: Request, name: Annotated[str, Path(description="the user's name, as in `On-Behalf-Of`")], call: Writer
) -> Response:
    """Erase the user for whom the request acts, with everything that is stored for them; return what went.

    Sessions, runs, memories, keys, access tokens and links to people in Slack go. A request for another user than its
    own is refused (403): a key with the scope `act_as` names the user in `On-Behalf-Of` too.
    """
    if name != call.principal.user_name:
        raise NotAllowed(
            f"This request acts for the user {call.principal.user_name!r}, and can erase only that one, not "
            f"{clean_text(name)[:100]!r}. Name the user in `On-Behalf-Of` too, with a key that has the scope `act_as`."
        )
    erased = await call.services.database.user_erasure.erase(name)
    dependencies_of(request).authenticator.forget_all()
    return JsonResponse(ErasedUserOut.render(erased))


MOST_SESSIONS = 100
LEAST_SECONDS, MOST_SECONDS, USUAL_SECONDS = 60, 86_400, 900


class CreateToken(BaseModel):
    """An access token for the key's user, or for the one that `On-Behalf-Of` names."""

    model_config = STRICT

    session_ids: Annotated[list[str], Field(min_length=1, max_length=MOST_SESSIONS)] | None = Field(
        None, description="the only sessions that the token reaches; null or left out: all of the user"
    )
    scopes: Annotated[list[Literal["read", "write"]], Field(min_length=1)] | None = Field(
        None, description="not more than the key has; default: `read` and `write`, as far as the key has them"
    )
    expires_in: int = Field(USUAL_SECONDS, ge=LEAST_SECONDS, le=MOST_SECONDS, description="lifetime in seconds")


router = PrefixRouter(prefix="/v1/tokens", tags=["tokens"])


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={HTTPStatus.CREATED: {"model": AccessTokenOut}},
    openapi_extra=described(body=CreateToken, errors=codes(NotFound)),
)
async def create_token(request: Request, call: KeyHolder) -> Response:
    """Make a short-lived token, with which a browser may use some or all sessions of one user.

    It ends when it expires, and when its key is revoked. A token cannot make another one.
    """
    body = await read_body(request, CreateToken)
    scopes = _scopes(call, body.scopes)
    session_ids = await _sessions(call, dependencies_of(request).shared, body.session_ids)
    assert call.principal.key_id is not None  # as_key_holder has checked it
    new = NewToken(call.principal.key_id, call.principal.user_id, scopes, session_ids, body.expires_in)
    created = await call.services.database.access_tokens.create(new)
    shown = AccessTokenOut(
        token=created.secret,
        expires_at=created.expires_at,
        scopes=sorted(scopes),
        session_ids=None if session_ids is None else sorted(map(str, session_ids)),
    )
    return JsonResponse(shown.model_dump(mode="json"), HTTPStatus.CREATED, {"Cache-Control": "no-store"})


def _scopes(call: Call, asked: Sequence[str] | None) -> frozenset[Scope]:
    """Return the scopes of the new token. Raises NotAllowed if the key lacks one of them, or has none to give."""
    own = call.principal.scopes
    scopes = own.intersection(TOKEN_SCOPES) if asked is None else frozenset(map(Scope, asked))
    if not scopes:
        raise NotAllowed("A token needs the scope `read` or `write`, and this key has neither.")
    lacking = sorted(scopes - own)
    if lacking:
        raise NotAllowed(f"This key lacks the scope `{lacking[0]}`, so that its tokens cannot have it.")
    return scopes


async def _sessions(call: Call, shared: SharedSessions, asked: Sequence[str] | None) -> frozenset[SessionId] | None:
    """Return the sessions of the new token, None for all. Raises NotFound for one that the user cannot reach."""
    if asked is None:
        return None
    user_id, wanted = call.principal.user_id, frozenset(map(session_id_of, asked))
    for session_id in sorted(wanted - await call.services.database.access_tokens.find_owned(user_id, wanted)):
        if await shared.owner_for(user_id, session_id=session_id) is None:
            raise session_not_found(session_id)
    return wanted
