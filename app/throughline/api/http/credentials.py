"""The key or the access token of a request: from its headers, or from the address of an event stream.

Browsers' `EventSource` cannot send headers. Addresses are written to the logs of proxies, so that only tokens, which
expire soon, may stand in them.
"""

from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from throughline.domain.errors import InvalidInput, NotAuthenticated
from throughline.domain.keys import KEY_START, TOKEN_PREFIX

IN_ADDRESS = "access_token"
WEBSOCKET = "WEBSOCKET"
STREAM = ("GET", "/v1/runs/{run_id}/events")
"""The route of event streams, the only one that takes a token in its address."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secret that a request sent, None if it sent none."""

    secret: str | None = field(repr=False)

    @property
    def is_token(self) -> bool:
        """Whether the secret is an access token, and no API key."""
        return self.secret is not None and self.secret.startswith(TOKEN_PREFIX)

    @property
    def is_of_this_service(self) -> bool:
        """Whether the secret looks like a key or a token of this service, and not like that of another one."""
        return self.secret is not None and self.secret.startswith((KEY_START, TOKEN_PREFIX))


def method_of(request: HTTPConnection) -> str:
    """Return the method of the request, WEBSOCKET for one that opens a WebSocket."""
    return str(request.scope.get("method", WEBSOCKET))


def route_of(request: HTTPConnection) -> tuple[str, str]:
    """Return the method of the request and the path of its route, with parameters in braces."""
    return method_of(request), getattr(request.scope.get("route"), "path", "")


def read_credentials(request: HTTPConnection) -> Credentials:
    """Return the credentials of the request.

    Raises NotAuthenticated if `Authorization` does not read `Bearer <key>`, or an API key stands in the address. Raises
    InvalidInput if the address of another route than an event stream has a token, or the request has two secrets.
    """
    in_header = _from_headers(request)
    in_address = request.query_params.getlist(IN_ADDRESS)
    if not in_address:
        return Credentials(in_header)
    if route_of(request) != STREAM:
        raise InvalidInput(
            f"Only `{' '.join(STREAM)}` takes `{IN_ADDRESS}`. Send the token as `Authorization: Bearer <token>`.",
            field=IN_ADDRESS,
        )
    if in_header is not None or len(in_address) > 1:
        raise InvalidInput(f"Send one token: in `{IN_ADDRESS}`, or in a header.", field=IN_ADDRESS)
    found = Credentials(in_address[0])
    if not found.is_token:
        raise NotAuthenticated(
            f"`{IN_ADDRESS}` takes only a token made by `POST /v1/tokens`, never an API key: addresses are written to "
            "logs. Revoke a key that was sent so."
        )
    return found


def _from_headers(request: HTTPConnection) -> str | None:
    authorization = request.headers.get("authorization")
    if authorization is None:
        return request.headers.get("x-api-key")
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticated("The `Authorization` header must read `Bearer <key>`.")
    return secret.strip()
