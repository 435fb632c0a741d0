"""Routes for operators that create, list and revoke API keys, as `throughline keys` does."""

from http import HTTPStatus
from typing import Annotated

import structlog
from fastapi import Path, Request, Response
from pydantic import BaseModel, Field

from throughline.db.users import MAX_NAME_LENGTH
from throughline.domain.errors import NotAllowed, NotFound
from throughline.domain.keys import DEFAULT_SCOPES, ApiKey, NewKey, Scope, prefix_of
from throughline.domain.message import clean_text
from throughline.http.body import read_body
from throughline.http.call import Call, Operator, dependencies_of
from throughline.http.documents import described
from throughline.http.fields import STRICT
from throughline.http.prefix_router import PrefixRouter
from throughline.http.problem_documents import JsonResponse
from throughline.http.route_errors import codes
from throughline.wire.service import CreatedKeyOut, KeyList, RevokedKeyOut, key_json

MOST_OF_NAME = 36  # an id
NOT_STORED = {"Cache-Control": "no-store"}
NO_KEY_SENT = (
    "A key is created by a key, and none was sent: a service that was started without keys would go on serving "
    "everybody on its machine until its restart. Create the first key with `throughline keys create` there, restart "
    "the service, and send that key."
)
log = structlog.get_logger(__name__)


class CreateKey(BaseModel):
    """A key for a user."""

    model_config = STRICT

    user: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        description="whose data the key reaches, created if new; default: the request's own user. Another one needs "
        "the scope `act_as`",
    )
    name: str = Field("", max_length=MAX_NAME_LENGTH, description="what the key is for")
    scopes: Annotated[list[Annotated[Scope, Field(strict=False)]], Field(min_length=1)] = Field(
        list(DEFAULT_SCOPES), description="not more than the request's key has; default: `read` and `write`"
    )


router = PrefixRouter(prefix="/v1/keys", tags=["operators"])


@router.get("", responses={HTTPStatus.OK: {"model": KeyList}})
async def list_keys(call: Operator) -> Response:
    """List all keys without their secrets, oldest first, revoked ones too."""
    keys = await call.services.database.keys.list()
    return JsonResponse({"data": [key_json(key, is_own=_is_own(call, key)) for key in keys]})


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses={HTTPStatus.CREATED: {"model": CreatedKeyOut}},
    openapi_extra=described(body=CreateKey),
)
async def create_key(request: Request, call: Operator) -> Response:
    """Create a key. Its secret is in this answer only.

    It has no scope that the request's key lacks, and is for another user only if that key has `act_as`.
    """
    body = await read_body(request, CreateKey)
    new = _read_new(call, body)
    created = await call.services.database.keys.create(new)
    _log(call, "api key created", prefix=created.prefix, user=new.user_name)
    shown = CreatedKeyOut(
        id=str(created.id),
        prefix=created.prefix,
        secret=created.secret,
        user=new.user_name,
        name=new.name,
        scopes=sorted(new.scopes),
    )
    return JsonResponse(shown.model_dump(mode="json"), HTTPStatus.CREATED, NOT_STORED)


@router.delete(
    "/{key}", responses={HTTPStatus.OK: {"model": RevokedKeyOut}}, openapi_extra=described(errors=codes(NotFound))
)
async def revoke_key(
    request: Request, key: Annotated[str, Path(description="the key's prefix or id, never its secret")], call: Operator
) -> Response:
    """Revoke a key for ever. It may be the request's own, which the answer says."""
    name = prefix_of(clean_text(key))
    revoked = await call.services.database.keys.revoke(name)
    if revoked is None:
        raise NotFound(f"There is no valid key {name[:MOST_OF_NAME]!r}. `GET /v1/keys` lists the prefixes.")
    dependencies_of(request).authenticator.forget_all()
    _log(call, "api key revoked", prefix=revoked.prefix, user=revoked.user_name)
    is_own = _is_own(call, revoked)
    return JsonResponse({**key_json(revoked, is_own=is_own), "note": _note(call, is_own=is_own)})


def _read_new(call: Call, body: CreateKey) -> NewKey:
    """Return the key to create. Raises NotAllowed for what the request's key lacks."""
    principal = call.principal
    if principal.key_id is None:
        raise NotAllowed(NO_KEY_SENT)
    lacking = sorted(set(body.scopes) - principal.scopes)
    if lacking:
        raise NotAllowed(f"This key lacks the scope `{lacking[0]}`, so that it cannot give it to another key.")
    user = principal.user_name if body.user is None else body.user
    if user != principal.user_name and Scope.ACT_AS not in principal.scopes:
        raise NotAllowed(
            f"This key reaches only the data of {principal.user_name!r}. To create keys for other users it needs the "
            "scope `act_as`."
        )
    return NewKey(user, body.name, frozenset(body.scopes))


def _is_own(call: Call, key: ApiKey) -> bool:
    return key.id == call.principal.key_id


def _note(call: Call, *, is_own: bool) -> str:
    seconds = f"{call.config.key_cache_seconds:g}"
    text = f"This process refuses the key now, others within {seconds} seconds."
    return f"{text} It is the key that this request was sent with: send another one from now on." if is_own else text


def _log(call: Call, event: str, **fields: str) -> None:
    operator, key_id = call.principal.user_name, call.principal.key_id
    log.info(event, operator=operator, key_id=str(key_id or ""), **fields)
