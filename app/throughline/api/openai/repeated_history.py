"""History that a request brings although the conversation that it continues has it already.

Some clients name a conversation or an earlier response and send the whole chat all the same. Stored again with each
turn, it would make the conversation grow with the square of its turns.
"""

from collections.abc import Iterable

from throughline.api.http.admitted_request import Call
from throughline.api.openai.find_target import Target
from throughline.db.sessions.messages import MessageQuery
from throughline.domain.message import REDACTED_TEXT, Message, NewMessage, Role, text_of
from throughline.domain.text import clean_text

MOST_COMPARED = 200
"""Newest messages of a session that are compared."""

COMPARED = (Role.USER, Role.ASSISTANT)


async def without_repeated(call: Call, target: Target, brought: tuple[NewMessage, ...]) -> tuple[NewMessage, ...]:
    """Return the brought history: none of it if the target ends with it.

    Texts of users and answers are compared, from the end, and each has to be there. Raises NotFound for a missing
    session.
    """
    said = _texts(brought)
    session_id = target.session_id if target.copied is None else target.copied.session_id
    if not said or session_id is None:
        return brought
    before = None if target.copied is None else target.copied.through_position + 1
    query = MessageQuery(limit=MOST_COMPARED, before=before, order="desc")
    stored = (await call.services.database.messages.list_messages(call.owner_id, session_id, query)).items[::-1]
    known = _texts(stored)
    is_cut = len(stored) == MOST_COMPARED
    if len(said) > len(known) and not is_cut:
        return brought
    pairs = zip(reversed(said), reversed(known), strict=False)
    is_repeated = all(one[0] is other[0] and other[1] in {one[1], REDACTED_TEXT} for one, other in pairs)
    return () if is_repeated else brought


def _texts(messages: Iterable[Message | NewMessage]) -> list[tuple[Role, str]]:
    """Return the texts of users and answers, without those of steps that only call tools."""
    said = ((message.role, clean_text(text_of(message.content))) for message in messages if message.role in COMPARED)
    return [(role, text) for role, text in said if text]
