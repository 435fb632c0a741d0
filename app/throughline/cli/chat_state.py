"""What a chat at the command line remembers between two lines."""

from dataclasses import dataclass

from throughline.cli.client import ServiceClient
from throughline.cli.screen import Screen
from throughline.domain.errors import InvalidInput
from throughline.wire.sessions import SessionOut

NO_SESSION = "No message has been sent yet: the session begins with the first one."


@dataclass(slots=True)
class ChatState:
    """One chat: whom it talks to, in which session (None until the first message), what was listed last."""

    client: ServiceClient
    screen: Screen
    agent: str
    session: SessionOut | None = None
    listed: tuple[SessionOut, ...] = ()
    is_over: bool = False


def session_of(state: ChatState) -> SessionOut:
    """Return the session of the chat. Raises InvalidInput where nothing has been sent yet."""
    if state.session is None:
        raise InvalidInput(NO_SESSION)
    return state.session


def in_history(session: SessionOut) -> str:
    """Return the line that says how long a resumed session is."""
    noun = "message" if session.message_count == 1 else "messages"
    return f"{session.message_count} {noun} in history ({session.summarized_count} summarized)"
