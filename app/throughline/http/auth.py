"""Authentication and scope checks of HTTP requests.

An API key has scopes. With the scope `act_as` it may act for the user named in `On-Behalf-Of`. An access token acts for
one user; `call.py` limits it further. Requests without a key are served only in local mode and on a trusted
unix socket.
"""

import asyncio
import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from throughline.domain.errors import InvalidInput, NotAllowed, NotAuthenticated
from throughline.domain.keys import KEY_START, TOKEN_PREFIX, ApiKey, Principal, Scope
from throughline.domain.message import is_blank
from throughline.http.route_errors import OriginRefused
from throughline.http.services import ApiConfig, Services, is_loopback

# The key or the access token of a request: from its headers, or from the address of an event stream. Browsers'
# `EventSource` cannot send headers. Addresses are written to the logs of proxies, so that only tokens, which expire
# soon, may stand in them.

IN_ADDRESS = "access_token"
SIGN_IN_COOKIE = "throughline_sign_in"
"""Beginning of the name of the cookie that has the secret of a browser's sign-in, or an access token."""

READING = frozenset({"GET", "HEAD"})
WEBSOCKET = "WEBSOCKET"
STREAM = ("GET", "/v1/runs/{run_id}/events")
"""The route of event streams, the only one that takes a token in its address."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secret that a request sent, None if it sent none; `is_cookie`: a browser sent it by itself."""

    secret: str | None = field(repr=False)
    is_cookie: bool = False

    @property
    def is_token(self) -> bool:
        """Whether the secret is an access token, and no API key."""
        return self.secret is not None and self.secret.startswith(TOKEN_PREFIX)

    @property
    def is_of_this_service(self) -> bool:
        """Whether the secret looks like a key or a token of this service, and not like that of another one."""
        return self.secret is not None and self.secret.startswith((KEY_START, TOKEN_PREFIX))


def sign_in_cookie(headers: Headers) -> str:
    """Return the name of the cookie. It has the port of the address: browsers send cookies to all ports of a host."""
    _, _, port = headers.get("host", "").rpartition(":")
    return f"{SIGN_IN_COOKIE}_{port}" if port.isdecimal() else SIGN_IN_COOKIE


def method_of(request: HTTPConnection) -> str:
    """Return the method of the request, WEBSOCKET for one that opens a WebSocket."""
    return str(request.scope.get("method", WEBSOCKET))


def route_of(request: HTTPConnection) -> tuple[str, str]:
    """Return the method of the request and the path of its route, with parameters in braces."""
    return method_of(request), getattr(request.scope.get("route"), "path", "")


def read_credentials(request: HTTPConnection) -> Credentials:
    """Return the credentials of the request: of a header, an address, or the cookie of a browser that signed in.

    Raises NotAuthenticated if `Authorization` does not read `Bearer <key>`, or an API key stands in the address. Raises
    InvalidInput if the address of another route than an event stream has a token, or the request has two secrets.
    Raises OriginRefused if a page of another origin sends the cookie with a change.
    """
    in_header = _from_headers(request)
    in_address = request.query_params.getlist(IN_ADDRESS)
    in_cookie = request.cookies.get(sign_in_cookie(request.headers))
    if in_header is None and not in_address and in_cookie:
        check_same_origin(request)
        return Credentials(in_cookie if in_cookie.startswith(TOKEN_PREFIX) else None, is_cookie=True)
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


def check_same_origin(request: HTTPConnection) -> None:
    """Raise OriginRefused for a change that a page of another origin has sent with this service's cookie.

    Browsers name the relation of the page in `Sec-Fetch-Site`, except on unencrypted connections to other machines;
    there they name its origin. A change with neither was sent by no page of this service.
    """
    site = request.headers.get("sec-fetch-site")
    _, _, origin = request.headers.get("origin", "").lower().partition("://")
    is_own = site == "same-origin" if site else origin == request.headers.get("host", "").lower()
    if method_of(request) not in READING and not is_own:
        raise OriginRefused(
            "A browser that has signed in may make changes only from the pages of this service. Other programs send a "
            "key as `Authorization: Bearer <key>`."
        )


def _from_headers(request: HTTPConnection) -> str | None:
    authorization = request.headers.get("authorization")
    if authorization is None:
        return request.headers.get("x-api-key")
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticated("The `Authorization` header must read `Bearer <key>`.")
    return secret.strip()


LOCAL_USER = "local"
ON_BEHALF_OF = "on-behalf-of"
FORWARDED, FORWARDED_FOR = "forwarded", ("x-forwarded-for", "x-real-ip")
MAX_USER_NAME = 200
CREATE_KEY_HINT = (
    "Create one with `throughline keys create --user NAME --scope read --scope write --scope act_as` and send it "
    "as `Authorization: Bearer <key>`."
)
HOW_TO_RENEW = "Make a new one with `POST /v1/tokens`."
MAX_KNOWN_KEYS = 1_000
RECHECK_SECONDS = 1.0
"""Shortest time in seconds between two look-ups of one key, however many open requests (event streams) use that key."""

CacheKey: TypeAlias = tuple[bytes, str]


@dataclass(frozen=True, slots=True)
class _CachedPrincipal:
    """An accepted key's principal, and the monotonic time in seconds until which the key is not looked up again."""

    principal: Principal
    until: float


class Authenticator:
    """Authenticator that turns request headers into a `Principal`.

    An accepted key is cached by its hash for `key_cache_seconds` (default 5). A revoked key therefore works that much
    longer at most, and a busy client costs no query per request.
    """

    def __init__(self, services: Services, config: ApiConfig) -> None:
        self._services = services
        self._config = config
        self._known: dict[CacheKey, _CachedPrincipal] = {}
        self._in_force: dict[bytes, float] = {}
        self._rechecking = asyncio.Lock()
        self._local: _CachedPrincipal | None = None

    def forget_all(self) -> None:
        """Forget all accepted keys and users, because one of them was erased."""
        self._known.clear()
        self._in_force.clear()
        self._local = None

    async def admit(self, headers: Headers, credentials: Credentials, scope: Scope | None) -> Principal:
        """Return the principal that sends the request, after checking that it has `scope`, if that is not None.

        Raises NotAuthenticated without a valid key or access token, NotAllowed without the scope, and OriginRefused in
        local mode for a request that may come from another machine or page.
        """
        principal = await self._identify(headers, credentials, scope)
        if scope is not None:
            check_scope(principal, scope)
        return principal

    async def recheck(self, credentials: Credentials) -> None:
        """Check that the credentials of an already admitted request are still valid; a request without any passes.

        Each key or token is looked up at most once in RECHECK_SECONDS. Raises NotAuthenticated if the key was
        revoked, or the token has expired.
        """
        secret = self._secret_of(credentials)
        if secret is None:
            return
        digest = hashlib.sha256(secret.encode()).digest()
        async with self._rechecking:  # concurrent requests wait here and share one look-up
            now = self._services.clock.monotonic()
            if now < self._in_force.get(digest, 0.0):
                return
            self._in_force.pop(digest, None)
            await self._find(credentials)
            if len(self._in_force) >= MAX_KNOWN_KEYS:
                self._in_force.clear()
            self._in_force[digest] = now + min(RECHECK_SECONDS, self._config.key_cache_seconds)

    async def _identify(self, headers: Headers, credentials: Credentials, scope: Scope | None) -> Principal:
        if self._config.is_local_mode and not self._config.trusted_socket:
            check_is_local(headers, self._config.cors_origins, scope)
        secret = self._secret_of(credentials)
        if secret is None:
            return await self._without_key(headers)
        user = _end_user(headers)
        cached = (hashlib.sha256(secret.encode()).digest(), user)
        known, now = self._known.get(cached), self._services.clock.monotonic()
        if known is not None and now < known.until:
            return known.principal
        principal, seconds = await self._find(credentials, user)
        if len(self._known) >= MAX_KNOWN_KEYS:
            self._known.clear()
        self._known[cached] = _CachedPrincipal(principal, now + min(seconds, self._config.key_cache_seconds))
        return principal

    def _secret_of(self, credentials: Credentials) -> str | None:
        """Return the secret to check. Local mode needs none, and some clients cannot be used without inventing one.

        A cookie there is one of another service on the same machine.
        """
        is_needless = credentials.is_cookie or not credentials.is_of_this_service
        return None if self._config.is_local_mode and is_needless else credentials.secret

    async def _without_key(self, headers: Headers) -> Principal:
        if not (self._config.trusted_socket or self._config.is_local_mode):
            raise NotAuthenticated(
                "Send a key as `Authorization: Bearer <key>`. Create one with `throughline keys create`."
            )
        if ON_BEHALF_OF in headers:
            raise NotAllowed(
                f"`On-Behalf-Of` needs a key with the scope `act_as`, and no key was sent. {CREATE_KEY_HINT}"
            )
        now = self._services.clock.monotonic()
        if self._local is None or now >= self._local.until:
            user_id = await self._services.database.users.get_or_create(LOCAL_USER)
            principal = Principal(user_id, LOCAL_USER, frozenset({Scope.READ, Scope.WRITE, Scope.OPERATE}))
            self._local = _CachedPrincipal(principal, now + self._config.key_cache_seconds)
        return self._local.principal

    async def _acting_for(self, user: str, principal: Principal, key_name: str) -> Principal:
        if Scope.ACT_AS not in principal.scopes:
            raise NotAllowed(
                f"`On-Behalf-Of` needs a key with the scope `act_as`, and this key lacks it. {CREATE_KEY_HINT}"
            )
        if len(user) > MAX_USER_NAME or not (user.isascii() and user.isprintable()):
            raise InvalidInput(
                f"`On-Behalf-Of` must be 1 to {MAX_USER_NAME} printable ASCII characters.", field="On-Behalf-Of"
            )
        user_id = await self._services.database.users.get_or_create(user)
        return replace(principal, user_id=user_id, user_name=user, actor=key_name)

    async def _find(self, credentials: Credentials, user: str = "") -> tuple[Principal, float]:
        """Return the principal of a key or a token, which acts for `user` unless '', and the seconds that it stays."""
        secret = credentials.secret or ""
        if credentials.is_token:
            name, (principal, seconds) = "", await self._find_token(secret)
        else:
            key = await self._find_key(secret)
            name, seconds = key.name, math.inf
            principal = Principal(key.user_id, key.user_name, frozenset(key.scopes), key_id=key.id)
        return (await self._acting_for(user, principal, name) if user else principal), seconds

    async def _find_key(self, secret: str) -> ApiKey:
        key = await self._services.database.keys.authenticate(secret)
        if key is None:
            raise NotAuthenticated("The key is unknown or revoked. `throughline keys list` lists the keys.")
        return key

    async def _find_token(self, secret: str) -> tuple[Principal, float]:
        token = await self._services.database.access_tokens.authenticate(secret)
        if token is None:
            raise NotAuthenticated(f"The token is unknown, or its key was revoked. {HOW_TO_RENEW}")
        if token.seconds_left <= 0:
            raise NotAuthenticated(f"The token expired at {token.expires_at.isoformat()}. {HOW_TO_RENEW}")
        return token.principal, token.seconds_left


def check_scope(principal: Principal, scope: Scope) -> None:
    """Raise NotAllowed unless the principal has the scope."""
    if scope not in principal.scopes:
        raise NotAllowed(f"This request needs a key with the scope `{scope.value}`.")


def _end_user(headers: Headers) -> str:
    """Return the user that `On-Behalf-Of` names, '' without that header.

    A blank or repeated header raises InvalidInput: a back end that lost the user's name must not act as the key's own
    user.
    """
    named = headers.getlist(ON_BEHALF_OF)
    if named and (len(named) > 1 or is_blank(named[0])):
        raise InvalidInput(
            "`On-Behalf-Of` must name exactly one user. Leave it out to act as the key's own.", field="On-Behalf-Of"
        )
    return named[0] if named else ""


def check_is_local(headers: Headers, origins: tuple[str, ...], scope: Scope | None) -> None:
    """Refuse requests that a web page from elsewhere may have sent through this machine's browser.

    This prevents DNS rebinding and CSRF. Requests that a proxy forwarded for another machine are refused, too; a proxy
    that adds no header cannot be detected. A page served on another port of this machine may only read: the browser
    decides whether the page may see the answer. Raises OriginRefused.
    """
    host = headers.get("host", "")
    if not _names_loopback(f"//{host}"):
        raise OriginRefused(
            "The service has no API key, so it serves only this machine. Call it as localhost or 127.0.0.1."
        )
    if _is_forwarded(headers):
        raise OriginRefused(
            "Without a key only this machine is served, and a proxy has passed this on for another one. Create a key "
            "(`throughline keys create`) and restart the service."
        )
    origin = headers.get("origin")
    if origin is None or origin in origins:
        return
    if not _names_loopback(origin):
        raise OriginRefused(
            "The service has no API key, so it serves only pages of this machine. Add the origin to CORS_ORIGINS."
        )
    if scope is not Scope.READ and urlsplit(origin).netloc.lower() != host.lower():
        raise OriginRefused(
            f"The service has no API key, so pages of other addresses than {host} may neither write nor use routes "
            f"for operators. Add {origin} to "
            "CORS_ORIGINS."
        )


def _is_forwarded(headers: Headers) -> bool:
    """Return whether a proxy forwarded the request for another machine.

    A `Forwarded` header always counts as forwarded, because it is not parsed here.
    """
    named = [client.strip() for name in FORWARDED_FOR for value in headers.getlist(name) for client in value.split(",")]
    return FORWARDED in headers or any(
        client and not (is_loopback(client) or _names_loopback(f"//{client}")) for client in named
    )


def _names_loopback(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False
