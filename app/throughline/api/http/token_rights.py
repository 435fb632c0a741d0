"""What an access token may do: the only place that decides it.

A route that is not named here is refused to all tokens.
"""

from throughline.api.http.services import Services
from throughline.db.statements.rows import run_not_found, session_not_found
from throughline.domain.errors import NotAllowed
from throughline.domain.ids import RunId, SessionId, UserId
from throughline.domain.principal import TokenLimits

OF_ONE_SESSION = ("/v1/sessions/{session_id}", "/v1/runs/{run_id}")
"""Paths of routes that serve one session, or one run of it; also the routes below them."""

OF_ALL_SESSIONS = frozenset({("GET", "/v1/sessions"), ("POST", "/v1/sessions")})
"""Routes that a token for all sessions of its user may use, too."""


def check_route(limits: TokenLimits, route: tuple[str, str]) -> None:
    """Raise NotAllowed unless a token with these limits may use the route: a method, and a path with parameters."""
    path = f"{route[1]}/"
    if any(path.startswith(f"{beginning}/") for beginning in OF_ONE_SESSION):
        return
    if route not in OF_ALL_SESSIONS:
        raise NotAllowed("An access token serves only its sessions and their runs. Send an API key for this request.")
    if limits.session_ids is not None:
        raise NotAllowed("This access token is for some sessions only. Send one for all sessions, or an API key.")


def check_session(limits: TokenLimits, session_id: SessionId) -> None:
    """Raise NotFound, as for a session that does not exist, unless the token is for this session or for all."""
    if limits.session_ids is not None and session_id not in limits.session_ids:
        raise session_not_found(session_id)


async def check_run(services: Services, limits: TokenLimits, owner_id: UserId, run_id: RunId) -> None:
    """Raise NotFound, as for a run that does not exist, unless the token is for the run's session or for all."""
    if limits.session_ids is None:
        return
    run = await services.database.runs.get_run(owner_id, run_id)
    if run.session_id not in limits.session_ids:
        raise run_not_found(run_id)
