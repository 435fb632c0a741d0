"""Per-request object of the routes: the services, the configuration and the authenticated caller.

A route declares a parameter such as `Reader` or `Writer`, for which the caller's scope has been checked. The module
also parses the ids in paths.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeAlias
from uuid import UUID

from fastapi import Depends, Path, Request, WebSocket
from starlette.requests import HTTPConnection

from throughline.db.front_end_storage import ParticipantRepository
from throughline.db.statements.rows import run_not_found, session_not_found
from throughline.domain.basic_types import Clock, MemoryId, MessageId, RunId, SessionId, SummaryId, UserId
from throughline.domain.errors import NotAllowed, NotFound
from throughline.domain.keys import Principal, Scope, TokenLimits
from throughline.domain.message import Source, clean_text
from throughline.domain.recall import HistoryQuery, SearchResult
from throughline.domain.replica import ReplicaAge
from throughline.execution.compute_threads import work_for
from throughline.http.auth import CREATE_KEY_HINT, Authenticator, check_scope, method_of, read_credentials, route_of
from throughline.http.services import ApiConfig, Services

ASK_AGAIN_SECONDS = 5.0


class SharedSessions:
    """Look-up of session participants that costs no query if the service has no participants.

    The existence of participants is remembered for good, their absence for ASK_AGAIN_SECONDS.
    """

    def __init__(self, participants: ParticipantRepository, clock: Clock) -> None:
        self._participants = participants
        self._clock = clock
        self._is_any = False
        self._ask_at = clock.monotonic()

    async def owner_for(
        self, user_id: UserId, *, session_id: SessionId | None = None, run_id: RunId | None = None
    ) -> UserId | None:
        """Return the owner of the session or run if the user is a participant, else None."""
        if not await self._any_exists():
            return None
        return await self._participants.owner_for(user_id, session_id=session_id, run_id=run_id)

    async def _any_exists(self) -> bool:
        if not self._is_any and self._clock.monotonic() >= self._ask_at:
            self._is_any = await self._participants.any_exists()
            self._ask_at = self._clock.monotonic() + ASK_AGAIN_SECONDS
        return self._is_any


# What an access token may do: the only place that decides it. A route that is not named here is refused to all tokens.

OF_ONE_SESSION = ("/v1/sessions/{session_id}", "/v1/runs/{run_id}")
"""Paths of routes that serve one session, or one run of it; also the routes below them."""

OF_ALL_SESSIONS = frozenset({
    ("GET", "/v1/sessions"),
    ("POST", "/v1/sessions"),
    ("POST", "/v1/sessions/{session_id}/branch"),
})
"""Routes that only a token for all sessions of its user may use: they list sessions or make a new one."""

OF_CHATS = ("/ag-ui", "/ai-sdk", "/langgraph")
"""Paths of routes whose requests name a session in other ways: `check_named_session` is called once it is found."""

PAGES = "/console"
"""Beginning of the paths of pages for browsers."""


def check_route(limits: TokenLimits, route: tuple[str, str]) -> None:
    """Raise NotAllowed unless a token with these limits may use the route: a method, and a path with parameters."""
    if route in OF_ALL_SESSIONS:
        _check_reaches_all(limits)
        return
    path = f"{route[1]}/"
    if not any(path.startswith(f"{beginning}/") for beginning in (*OF_ONE_SESSION, *OF_CHATS)):
        raise NotAllowed("An access token serves only its sessions and their runs. Send an API key for this request.")


def _check_reaches_all(limits: TokenLimits) -> None:
    if limits.session_ids is not None:
        raise NotAllowed("This access token is for some sessions only. Send one for all sessions, or an API key.")


def check_session(limits: TokenLimits, session_id: SessionId) -> None:
    """Raise NotFound, as for a session that does not exist, unless the token is for this session or for all."""
    if limits.session_ids is not None and session_id not in limits.session_ids:
        raise session_not_found(session_id)


def check_named_session(principal: Principal, session_id: SessionId | None) -> None:
    """Check that an access token may use the session that a request names in a header or its body, None for a new one.

    Raises NotFound for a session that it is not for, NotAllowed for a new session if it is for some sessions only.
    """
    if principal.limits is None:
        return
    if session_id is None:
        _check_reaches_all(principal.limits)
    else:
        check_session(principal.limits, session_id)


async def check_run(services: Services, limits: TokenLimits, owner_id: UserId, run_id: RunId) -> None:
    """Raise NotFound, as for a run that does not exist, unless the token is for the run's session or for all."""
    if limits.session_ids is None:
        return
    run = await services.database.runs.get_run(owner_id, run_id)
    if run.session_id not in limits.session_ids:
        raise run_not_found(run_id)


UUID_LENGTH = 36
OPEN_TO_PARTICIPANTS = ("/messages", "/cancel")
"""Path endings of the changes that a participant of a shared session may make: send a message, cancel a run.

All other changes (the session, its pins and its summaries) are reserved to the owner.
"""


@dataclass(frozen=True, slots=True)
class ApiDependencies:
    """Objects that the application keeps for all of its routes."""

    services: Services
    config: ApiConfig
    authenticator: Authenticator
    shared: SharedSessions
    home: str = ""
    """Path of the pages for browsers, '' without any."""


@dataclass(frozen=True, slots=True)
class Call:
    """One admitted request.

    `recheck` raises NotAuthenticated once the request's key is revoked or its token has expired. `shared_by` is the
    owner of the requested session if the caller takes part in it without owning it, else None.
    """

    services: Services
    config: ApiConfig
    principal: Principal
    recheck: Callable[[], Awaitable[None]]
    shared_by: UserId | None = None

    @property
    def owner_id(self) -> UserId:
        """The user whose data the request may reach: the caller, or the owner of a session the caller takes part in."""
        return self.shared_by or self.principal.user_id

    @property
    def unix_time(self) -> int:
        """The current Unix time, in seconds."""
        return int(self.services.clock.now().timestamp())

    @property
    def is_operator(self) -> bool:
        """Whether the caller may read what is for operators: words of providers, and hidden reasoning."""
        return Scope.OPERATE in self.principal.scopes

    @property
    def reaches_all_runs(self) -> bool:
        """Whether the caller reaches the runs and costs of all users: an operator who does not act for another user."""
        return self.is_operator and self.principal.actor is None

    @property
    def is_limited(self) -> bool:
        """Whether the caller may reach only some of the user's sessions."""
        return self.principal.limits is not None and self.principal.limits.session_ids is not None


def dependencies_of(request: HTTPConnection) -> ApiDependencies:
    """Return the objects that `create_app` stored for the routes."""
    dependencies: ApiDependencies = request.app.state.dependencies
    return dependencies


async def as_reader(request: Request) -> Call:
    """Return a request that only reads as a `Call`. Raises NotAuthenticated, NotAllowed without the scope `read`."""
    return await admit(request, Scope.READ)


async def as_writer(request: Request) -> Call:
    """Return a request that changes data as a `Call`. Raises NotAuthenticated, NotAllowed without the scope `write`."""
    return await admit(request, Scope.WRITE)


async def admit_websocket(websocket: WebSocket) -> Call:
    """Return the request that opens a WebSocket as a `Call`. Raises as `as_writer` does."""
    return await admit(websocket, Scope.WRITE)


async def as_key_holder(request: Request) -> Call:
    """Return a request with an API key of any scope as a `Call`. Raises NotAuthenticated, NotAllowed without a key."""
    call = await admit(request, None)
    if call.principal.key_id is None:
        raise NotAllowed(f"This request needs an API key, and none was sent. {CREATE_KEY_HINT}")
    return call


async def as_operator(request: Request) -> Call:
    """Return a request of an operator as a `Call`. Raises NotAuthenticated, NotAllowed without the scope `operate`."""
    return await admit(request, Scope.OPERATE)


async def as_canceller(request: Request) -> Call:
    """Return a request that stops work as a `Call`: of a writer, or of an operator who acts for no other user.

    Raises NotAuthenticated, NotAllowed.
    """
    call = await admit(request, None)
    if Scope.WRITE not in call.principal.scopes and not call.reaches_all_runs:
        raise NotAllowed("This request needs a key with the scope `write`, or with `operate` and no `On-Behalf-Of`.")
    return call


Reader: TypeAlias = Annotated[Call, Depends(as_reader)]
Writer: TypeAlias = Annotated[Call, Depends(as_writer)]
KeyHolder: TypeAlias = Annotated[Call, Depends(as_key_holder)]
Operator: TypeAlias = Annotated[Call, Depends(as_operator)]
Canceller: TypeAlias = Annotated[Call, Depends(as_canceller)]
PathId: TypeAlias = Annotated[str, Path(json_schema_extra={"format": "uuid"})]
"""The id of an object in a path, for the functions below. Any text is accepted: what is no id is not found."""


async def admit(request: HTTPConnection, scope: Scope | None, route: tuple[str, str] | None = None) -> Call:
    """Return a request as a `Call` if its caller has the scope, any for None, and may use the route.

    `route` is the route whose rights count for the request, without it the request's own. Raises NotAuthenticated,
    NotAllowed, and NotFound for a session or run that an access token is not for.
    """
    dependencies = dependencies_of(request)
    credentials = read_credentials(request)
    principal = await dependencies.authenticator.admit(request.headers, credentials, scope)
    if principal.limits is not None:
        check_route(principal.limits, route or route_of(request))
    recheck = partial(dependencies.authenticator.recheck, credentials)
    call = Call(dependencies.services, dependencies.config, principal, recheck)
    return await _reach(call, dependencies.shared, (method_of(request), request.url.path), request.path_params)


async def admit_as(
    request: HTTPConnection, call: Call, scope: Scope, route: tuple[str, str], ids: Mapping[str, str]
) -> Call:
    """Return an admitted request as one to another route, with `ids` in its path: for a route that does many things.

    Raises NotAllowed, and NotFound for a session or run that an access token is not for.
    """
    check_scope(call.principal, scope)
    if call.principal.limits is not None:
        check_route(call.principal.limits, route)
    return await _reach(call, dependencies_of(request).shared, route, ids)


async def _reach(call: Call, shared: SharedSessions, route: tuple[str, str], ids: Mapping[str, str]) -> Call:
    """Return the call with the owner of the session or run that `ids` name. Raises NotFound if a token is not for it.

    `route` is a method and a path, with parameters or their values.
    """
    principal = call.principal
    shared_by = await _sharing_owner(route, ids, shared, principal)
    if principal.limits is not None:
        await _check_session(ids, call.services, principal.limits, shared_by or principal.user_id)
    work_for(shared_by or principal.user_id)
    return replace(call, shared_by=shared_by)


async def _check_session(path: Mapping[str, str], services: Services, limits: TokenLimits, owner_id: UserId) -> None:
    """Raise NotFound unless the token may reach the session, or the session of the run, that the path names."""
    if "session_id" in path:
        check_session(limits, session_id_of(path["session_id"]))
    if "run_id" in path:
        await check_run(services, limits, owner_id, run_id_of(path["run_id"]))


async def _sharing_owner(
    route: tuple[str, str], path: Mapping[str, str], shared: SharedSessions, principal: Principal
) -> UserId | None:
    """Return the owner of the requested session if the principal takes part in it without owning it, else None.

    Returns None for requests that participants may not make.
    """
    if route[0] != "GET" and not route[1].endswith(OPEN_TO_PARTICIPANTS):
        return None
    with suppress(NotFound):  # the route itself raises it again
        if "session_id" in path:
            return await shared.owner_for(principal.user_id, session_id=session_id_of(path["session_id"]))
        if "run_id" in path:
            return await shared.owner_for(principal.user_id, run_id=run_id_of(path["run_id"]))
    return None


async def search_on_replica(
    call: Call, session_id: SessionId | None, query: HistoryQuery
) -> tuple[SearchResult, ReplicaAge | None]:
    """Return the best matches for the caller, from a replica if there is one, and the age of their data.

    Raises NotFound, InvalidInput.
    """
    services = call.services
    return await services.history.search_on_replica(call.owner_id, session_id, query, services.database.reads.begin())


def source_of(request: HTTPConnection, call: Call) -> Source:
    """Return the interface that the client names in `X-Client` (`web` or `cli`), else the API.

    Without the header, requests over a trusted socket come from the CLI.
    """
    named = request.headers.get("x-client", "cli" if call.config.trusted_socket else "api")
    return {"web": Source.WEB, "cli": Source.CLI}.get(named.lower(), Source.API)


def session_id_of(text: str) -> SessionId:
    """Return the session id in a path. Raises NotFound if `text` is no id, as for a session that does not exist."""
    return SessionId(_uuid(text, "session"))


def run_id_of(text: str) -> RunId:
    """Return the run id in a path. Raises NotFound if `text` is no id, as for a run that does not exist."""
    return RunId(_uuid(text, "run"))


def message_id_of(text: str) -> MessageId:
    """Return the message id in a path. Raises NotFound if `text` is no id, as for a message that does not exist."""
    return MessageId(_uuid(text, "message"))


def memory_id_of(text: str) -> MemoryId:
    """Return the memory id in a path. Raises NotFound if `text` is no id, as for a memory that does not exist."""
    return MemoryId(_uuid(text, "memory"))


def summary_id_of(text: str) -> SummaryId:
    """Return the summary id in a path. Raises NotFound if `text` is no id, as for a summary that does not exist."""
    return SummaryId(_uuid(text, "summary"))


def _uuid(text: str, kind: str) -> UUID:
    """Return `text` as a UUID. Raises NotFound unless it is written in the canonical form.

    `UUID` itself would also accept braces, prefixes and missing hyphens.
    """
    try:
        found = UUID(text) if len(text) == UUID_LENGTH else None
    except ValueError:
        found = None
    if found is None or str(found) != text.lower():
        raise NotFound(f"There is no {kind} {clean_text(text)[:UUID_LENGTH]}.")
    return found
