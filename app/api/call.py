"""What every route gets: the parts behind it, the configuration, and who asks, with the scope already checked."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias
from uuid import UUID

from fastapi import Depends, Request

from app.api.auth import Authenticator
from app.api.config import ApiConfig
from app.api.services import Services
from app.domain.errors import NotFound
from app.domain.ids import RunId, SessionId, SummaryId, UserId
from app.domain.message import Source
from app.domain.principal import Principal, Scope
from app.domain.text import clean_text

UUID_LENGTH = 36


@dataclass(frozen=True, slots=True)
class Door:
    """What the application keeps for its routes."""

    services: Services
    config: ApiConfig
    authenticator: Authenticator


@dataclass(frozen=True, slots=True)
class Call:
    """One admitted request."""

    services: Services
    config: ApiConfig
    principal: Principal

    @property
    def owner_id(self) -> UserId:
        """The user whose data may be reached."""
        return self.principal.user_id


def door_of(request: Request) -> Door:
    """Return what `create_app` stored for the routes."""
    door: Door = request.app.state.door
    return door


async def as_reader(request: Request) -> Call:
    """Admit a request that reads."""
    return await _admit(request, Scope.READ)


async def as_writer(request: Request) -> Call:
    """Admit a request that changes something."""
    return await _admit(request, Scope.WRITE)


Reader: TypeAlias = Annotated[Call, Depends(as_reader)]
Writer: TypeAlias = Annotated[Call, Depends(as_writer)]


async def _admit(request: Request, scope: Scope) -> Call:
    door = door_of(request)
    principal = await door.authenticator.admit(request.headers, scope)
    return Call(door.services, door.config, principal)


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
