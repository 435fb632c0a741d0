"""Access tokens for a server at an address, by OAuth 2.0 client credentials (RFC 6749, section 4.4).

Only the configured `token_url` is called. The SDK's own client credentials would ask the server of tools where to send
the secret.
"""

import asyncio
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote_plus

import httpx2

from throughline.domain.tool_server import ClientCredentials
from throughline.tools.mcp_client.bounds import NotConnected

TOKEN_SECONDS = 15.0
"""How long the request of a token may take."""

RENEW_BEFORE_SECONDS = 30.0
"""A token is renewed this long before it expires, a short-lived one after half of its lifetime."""

MAX_LIFETIME_SECONDS = 86_400.0
"""A token is renewed after a day at the latest, if the answer says that it expires."""

MAX_ANSWER_BYTES = 100_000
TOKEN = re.compile(r"[\x21-\x7e]{1,20000}")
ERROR_CODE = re.compile(r"[a-z_]{1,60}")
"""What is shown of an error: its code. The description is the server's own text, and might repeat the secret."""

SUCCESS = 200
UNAUTHORIZED = 401


class TokenRefused(NotConnected):
    """Raised if there is no token for a request; the text says why, without secrets."""


@dataclass(slots=True)
class TokenSource:
    """The token for one server. It is asked for when it is first needed, and kept until shortly before it expires."""

    credentials: ClientCredentials
    client_id: str = field(repr=False)
    client_secret: str = field(repr=False)
    recent_tokens: list[str] = field(default_factory=list, init=False, repr=False)
    """The current token and the previous one, which are masked in reasons."""

    _token: str = field(default="", init=False, repr=False)
    _valid_until: float | None = field(default=None, init=False)
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def token(self) -> str:
        """Return a token that is valid as far as is known. Raises TokenRefused."""
        async with self._asking:
            if not self._token or (self._valid_until is not None and _now() >= self._valid_until):
                self._keep(await self._ask())
            return self._token

    def discard(self, token: str) -> None:
        """Discard the token if it is the current one, so that the next request asks for another."""
        if token == self._token:
            self._token = ""

    def _keep(self, answer: Mapping[str, object]) -> None:
        """Keep the token of an answer. Raises TokenRefused if it has none that can be sent."""
        token, kind, lasts = answer.get("access_token"), answer.get("token_type"), answer.get("expires_in")
        if not isinstance(token, str) or not TOKEN.fullmatch(token):
            raise TokenRefused("the answer of token_url has no access_token that can be sent")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise TokenRefused("the answer of token_url has a token of another type than Bearer")
        self._token = token
        self.recent_tokens = [token, *self.recent_tokens[:1]]
        self._valid_until = None
        if isinstance(lasts, int | float) and not isinstance(lasts, bool) and 0 < lasts < math.inf:
            seconds = min(lasts, MAX_LIFETIME_SECONDS)
            self._valid_until = _now() + seconds - min(RENEW_BEFORE_SECONDS, seconds / 2)

    async def _ask(self) -> Mapping[str, object]:
        """Return the answer of `token_url`. Raises TokenRefused."""
        try:
            async with (
                asyncio.timeout(TOKEN_SECONDS),
                httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=TOKEN_SECONDS) as client,
                client.stream(
                    "POST",
                    self.credentials.token_url,
                    data=self._form(),
                    headers={"accept": "application/json", "accept-encoding": "identity"},
                    auth=httpx2.BasicAuth(quote_plus(self.client_id), quote_plus(self.client_secret)),
                ) as response,
            ):
                return await _read(response)
        except TimeoutError as error:
            raise TokenRefused(f"token_url did not answer within {TOKEN_SECONDS:g} seconds") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise TokenRefused(f"token_url cannot be reached ({type(error).__name__})") from error

    def _form(self) -> dict[str, str]:
        form = {"grant_type": "client_credentials"}
        if self.credentials.scopes:
            form["scope"] = " ".join(self.credentials.scopes)
        if self.credentials.resource:
            form["resource"] = self.credentials.resource
        return form


async def _read(response: httpx2.Response) -> Mapping[str, object]:
    """Return the members of a token's answer. Raises TokenRefused for any other answer."""
    if response.has_redirect_location:
        raise TokenRefused(f"token_url redirects ({response.status_code}), which is not followed: set the new address")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise TokenRefused("token_url compressed its answer, though asked not to")
    body = b""
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise TokenRefused(f"the answer of token_url has more than {MAX_ANSWER_BYTES:,} bytes")
    members = _members(body)
    if response.status_code != SUCCESS:
        code = members.get("error")
        shown = f", {code}" if isinstance(code, str) and ERROR_CODE.fullmatch(code) else ""
        raise TokenRefused(f"token_url refused a token ({response.status_code}{shown})")
    return members


def _members(body: bytes) -> Mapping[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class AuthorizedTransport(httpx2.AsyncBaseTransport):
    """HTTP transport that sends a token with each request, and once more with a new token if that was refused."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, tokens: TokenSource) -> None:
        self._inner = inner
        self._tokens = tokens

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        token = await self._tokens.token()
        response = await self._send(request, token)
        if response.status_code != UNAUTHORIZED:
            return response
        await response.aclose()
        self._tokens.discard(token)
        return await self._send(request, await self._tokens.token())

    async def _send(self, request: httpx2.Request, token: str) -> httpx2.Response:
        request.headers["authorization"] = f"Bearer {token}"
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _now() -> float:
    return asyncio.get_running_loop().time()
