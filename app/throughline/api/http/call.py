"""What every route gets: the parts behind it, the configuration, and who asks, with the scope already checked."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeAlias
from uuid import UUID

from fastapi import Depends, Request

from throughline.api.http.auth import Authenticator
from throughline.api.http.config import ApiConfig
from throughline.api.http.services import Services
from throughline.api.http.shared_sessions import SharedSessions
from throughline.domain.errors import NotFound
from throughline.domain.ids import MemoryId, MessageId, RunId, SessionId, SummaryId, UserId
from throughline.domain.message import Source
from throughline.domain.principal import Principal, Scope
from throughline.domain.text import clean_text
from throughline.execution.compute_threads import work_for

UUID_LENGTH = 36
OPEN_TO_PARTICIPANTS = ("/messages", "/cancel")
"""What they may do beside reading: write, and stop a turn. The session, its pins and summaries are its owner's."""


@dataclass(frozen=True, slots=True)
class ApiDependencies:
    """What the application keeps for its routes."""

    services: Services
    config: ApiConfig
    authenticator: Authenticator
    shared: SharedSessions


@dataclass(frozen=True, slots=True)
class Call:
    """One admitted request. `recheck` raises NotAuthenticated once its key is not in force any more."""

    services: Services
    config: ApiConfig
    principal: Principal
    recheck: Callable[[], Awaitable[None]]
    shared_by: UserId | None = None

    @property
    def owner_id(self) -> UserId:
        """The user whose data may be reached; of a session one takes part in, its owner."""
        return self.shared_by or self.principal.user_id


def dependencies_of(request: Request) -> ApiDependencies:
    """Return what `create_app` stored for the routes."""
    dependencies: ApiDependencies = request.app.state.dependencies
    return dependencies


async def as_reader(request: Request) -> Call:
    """Admit a request that reads."""
    return await _admit(request, Scope.READ)


async def as_writer(request: Request) -> Call:
    """Admit a request that changes something."""
    return await _admit(request, Scope.WRITE)


Reader: TypeAlias = Annotated[Call, Depends(as_reader)]
Writer: TypeAlias = Annotated[Call, Depends(as_writer)]


async def _admit(request: Request, scope: Scope) -> Call:
    dependencies = dependencies_of(request)
    principal = await dependencies.authenticator.admit(request.headers, scope)
    shared_by = await _sharing_owner(request, dependencies.shared, principal)
    work_for(shared_by or principal.user_id)
    recheck = partial(dependencies.authenticator.recheck, request.headers)
    return Call(dependencies.services, dependencies.config, principal, recheck, shared_by)


async def _sharing_owner(request: Request, shared: SharedSessions, principal: Principal) -> UserId | None:
    """Return the owner of a session that the principal takes part in, where the request is open to participants."""
    if request.method != "GET" and not request.url.path.endswith(OPEN_TO_PARTICIPANTS):
        return None
    path = request.path_params
    with suppress(NotFound):  # the route itself will say so
        if "session_id" in path:
            return await shared.owner_for(principal.user_id, session_id=session_id_of(path["session_id"]))
        if "run_id" in path:
            return await shared.owner_for(principal.user_id, run_id=run_id_of(path["run_id"]))
    return None


def source_of(request: Request, call: Call) -> Source:
    """Return the door the client says it is (`X-Client: web | cli`), else the API itself."""
    named = request.headers.get("x-client", "cli" if call.config.trusted_socket else "api")
    return {"web": Source.WEB, "cli": Source.CLI}.get(named.lower(), Source.API)


def session_id_of(text: str) -> SessionId:
    """Return the id in the path. Raises NotFound, in the words for an unknown session, where it cannot be one."""
    return SessionId(_uuid(text, "session"))


def run_id_of(text: str) -> RunId:
    """Return the id in the path. Raises NotFound, in the words for an unknown run, where it cannot be one."""
    return RunId(_uuid(text, "run"))


def message_id_of(text: str) -> MessageId:
    """Return the id in the path. Raises NotFound, in the words for an unknown message, where it cannot be one."""
    return MessageId(_uuid(text, "message"))


def memory_id_of(text: str) -> MemoryId:
    """Return the id in the path. Raises NotFound, in the words for an unknown memory, where it cannot be one."""
    return MemoryId(_uuid(text, "memory"))


def summary_id_of(text: str) -> SummaryId:
    """Return the id in the path. Raises NotFound, in the words for an unknown version, where it cannot be one."""
    return SummaryId(_uuid(text, "summary"))


def _uuid(text: str, kind: str) -> UUID:
    """Only the usual form is an id: `UUID` itself would also take braces, prefixes and missing hyphens."""
    try:
        found = UUID(text) if len(text) == UUID_LENGTH else None
    except ValueError:
        found = None
    if found is None or str(found) != text.lower():
        raise NotFound(f"There is no {kind} {clean_text(text)[:UUID_LENGTH]}.")
    return found
