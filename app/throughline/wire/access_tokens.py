"""JSON shape of an access token, as it is returned to the program that asked for it."""

from typing import Annotated

from pydantic import Field

from throughline.domain.keys import TOKEN_SCOPES
from throughline.wire.json_shape import Id, Shape, Time, one_of


class AccessTokenOut(Shape):
    """A short-lived token for a browser. It is shown only once."""

    token: str = Field(description="sent as `Authorization: Bearer <token>`, or as `access_token` to an event stream")
    expires_at: Time
    scopes: list[Annotated[str, one_of(*TOKEN_SCOPES)]]
    session_ids: list[Id] | None = Field(description="null: all sessions of the user")
