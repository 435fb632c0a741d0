"""What every page of a session shows around its content: the list of sessions and the session's head."""

from collections.abc import Mapping

from throughline.console.sessions import find_sessions
from throughline.domain.session import Session
from throughline.http.call import Call


async def session_values(call: Call, session: Session) -> Mapping[str, object]:
    """Return what the templates of a session's pages need besides their content. An archived chat stays in its list."""
    return {
        "session": session,
        "sessions": await find_sessions(call, include_archived=session.archived),
        "agents": sorted(agent.name for agent in call.services.agents.all()),
        "report": None,
        "chosen": str(session.id),
        "q": "",
        "archived": session.archived,
    }
