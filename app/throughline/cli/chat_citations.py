"""Remarks of a chat on the citations in its answers and in the history."""

from collections.abc import Sequence

from throughline.cli.chat_state import ChatState, session_of
from throughline.cli.history_views import problems, reading_hint, text_of
from throughline.context.find_citations import find_citations
from throughline.domain.errors import ThroughlineError
from throughline.wire.messages import CitationOut, MessageOut


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
