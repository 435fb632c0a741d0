"""What a chat keeps while it runs, and its remarks on citations in answers and in the history."""

from collections.abc import Sequence
from dataclasses import dataclass

from throughline.cli.client import ServiceClient
from throughline.cli.dependencies import LineReader
from throughline.cli.history_views import problems, reading_hint, text_of
from throughline.cli.screen import Screen
from throughline.context.find_citations import find_citations
from throughline.domain.errors import InvalidInput, ThroughlineError
from throughline.wire.messages import CitationOut, MessageOut
from throughline.wire.sessions import SessionOut

NO_SESSION = "No message has been sent yet: the session begins with the first one."


@dataclass(slots=True)
class ChatState:
    """State of one chat: its agent, its session (None until the first message), and the sessions listed last.

    `model` is the model chosen for further messages, '' for the agent's own. It is forgotten when the agent or the
    session changes. `lines` is where the user is asked, None if nobody types there. `draft` is the text with which
    the next line begins, to be edited.
    """

    client: ServiceClient
    screen: Screen
    agent: str
    session: SessionOut | None = None
    listed: tuple[SessionOut, ...] = ()
    model: str = ""
    is_over: bool = False
    lines: LineReader | None = None
    draft: str = ""


def session_of(state: ChatState) -> SessionOut:
    """Return the session of the chat. Raises InvalidInput if no message has been sent yet."""
    if state.session is None:
        raise InvalidInput(NO_SESSION)
    return state.session


def in_history(session: SessionOut, ready_through: int) -> str:
    """Return the line that shows the length of a resumed session and how far its summaries reach.

    `ready_through` is the last message that a prepared summary covers, 0 without one.
    """
    if not session.message_count:
        return "No messages yet."
    noun = "message" if session.message_count == 1 else "messages"
    covered = f"{session.summarized_count} summarized"
    if ready_through > session.summarized_count:
        covered += f", a summary ready through #{ready_through}"
    elif not session.summarized_count:
        return f"{session.message_count} {noun} in history"
    return f"{session.message_count} {noun} in history ({covered})"


def remark_on(state: ChatState, citations: Sequence[CitationOut]) -> None:
    """Print which citations are not valid, and the command that shows the messages of the first valid one."""
    for problem in problems(citations):
        state.screen.warn(problem)
    hint = reading_hint(citations, session_of(state).id)
    if hint:
        state.screen.note(hint)


async def remark_on_answer(state: ChatState, answer: MessageOut) -> None:
    """Print which citations of a streamed answer are not valid, and the command that shows a valid one's messages.

    The answer was printed before they could be checked. An error of the service is not raised, because the answer is
    complete: nothing is printed then.
    """
    if not find_citations(text_of(answer), most=1):
        return
    try:
        stored = await state.client.message_at(session_of(state).id, answer.position)
    except ThroughlineError:
        return
    if stored is not None:
        remark_on(state, stored.citations)
