"""Route that makes access tokens: short-lived, for one user, for browsers."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from throughline.db.statements.rows import session_not_found
from throughline.domain.basic_types import SessionId
from throughline.domain.errors import NotAllowed, NotFound
from throughline.domain.keys import TOKEN_SCOPES, NewToken, Scope
from throughline.http.admitted_request import Call, KeyHolder, SharedSessions, dependencies_of, session_id_of
from throughline.http.body import read_body
from throughline.http.documented import described
from throughline.http.fields import STRICT
from throughline.http.route_errors import codes
from throughline.http.sse import JsonResponse
from throughline.wire.service import AccessTokenOut

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


router = APIRouter(prefix="/v1/tokens", tags=["tokens"])


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
