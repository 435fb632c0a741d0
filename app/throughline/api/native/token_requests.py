"""Request body of the route that makes access tokens."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from throughline.api.native.requests import STRICT

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
