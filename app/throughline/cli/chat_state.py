"""State of a chat at the command line between two lines."""

from dataclasses import dataclass

from throughline.cli.client import ServiceClient
from throughline.cli.dependencies import LineReader
from throughline.cli.screen import Screen
from throughline.domain.errors import InvalidInput
from throughline.wire.sessions import SessionOut

NO_SESSION = "No message has been sent yet: the session begins with the first one."


@dataclass(slots=True)
class ChatState:
    """State of one chat: its agent, its session (None until the first message), and the sessions listed last.

    `model` is the model chosen for further messages, '' for the agent's own. It is forgotten when the agent or the
    session changes. `lines` is where the user is asked, None if nobody types there.
    """

    client: ServiceClient
    screen: Screen
    agent: str
    session: SessionOut | None = None
    listed: tuple[SessionOut, ...] = ()
    model: str = ""
    is_over: bool = False
    lines: LineReader | None = None


def session_of(state: ChatState) -> SessionOut:
    """Return the session of the chat. Raises InvalidInput if no message has been sent yet."""
    if state.session is None:
        raise InvalidInput(NO_SESSION)
    return state.session


def in_history(session: SessionOut) -> str:
    """Return the line that shows the length of a resumed session."""
    if not session.message_count:
        return "No messages yet."
    noun = "message" if session.message_count == 1 else "messages"
    summarized = f" ({session.summarized_count} summarized)" if session.summarized_count else ""
    return f"{session.message_count} {noun} in history{summarized}"
