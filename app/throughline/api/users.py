"""Route that erases a user."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from throughline.domain.errors import NotAllowed, NotFound
from throughline.domain.message import clean_text
from throughline.http.admitted_request import Writer, dependencies_of
from throughline.http.documented import described
from throughline.http.route_errors import codes
from throughline.http.sse import JsonResponse
from throughline.wire.service import ErasedUserOut

router = APIRouter(prefix="/v1/users", tags=["users"])


@router.delete(
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
