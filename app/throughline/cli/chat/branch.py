"""The chat command `/branch`: go on in a copy of the session, from an earlier message."""

from throughline.cli.chat.state import ChatState, in_history, session_of
from throughline.cli.printable import printable
from throughline.cli.session_files import is_position
from throughline.domain.errors import InvalidInput
from throughline.domain.message import REDACTED_TEXT, Role
from throughline.wire.messages import MessageOut

ONLY_POSITION = "Write /branch with the number of the last message to keep, as in /branch 12, or alone."


async def branch(state: ChatState, argument: str) -> None:
    """Go on in a new session that ends with the message at a position, or before the user's last message.

    The message of the user that came next is the beginning of the next line, or printed if nobody types.
    """
    session = session_of(state)
    following = await _following(state, session.id, argument)
    at = _position_of(argument) if argument else _before(following)
    new = await state.client.branch(session.id, at)
    state.session, state.agent, state.model = new, new.agent, ""
    state.screen.say(f"Session {new.id}")
    state.screen.say(in_history(new, 0))
    if state.lines is not None:
        state.screen.note(f"/resume {session.id} goes back")
    _offer(state, following)


async def _following(state: ChatState, session_id: str, argument: str) -> MessageOut | None:
    """Return the message after the position, or the user's last one without a position; None if there is none."""
    if argument:
        return await state.client.message_at(session_id, _position_of(argument) + 1)
    return await state.client.last_of_user(session_id)


def _position_of(argument: str) -> int:
    position = argument.removeprefix("#")
    if position != "0" and not is_position(position):
        raise InvalidInput(ONLY_POSITION)
    return int(position)


def _before(message: MessageOut | None) -> int:
    if message is None:
        raise InvalidInput("You have sent no message in this session, so there is nothing to ask again.")
    return message.position - 1


def _offer(state: ChatState, message: MessageOut | None) -> None:
    """Let the next line begin with the user's message, or print the message if nobody types."""
    if message is None or message.role != Role.USER or message.content == REDACTED_TEXT:
        return
    text = _text_of(message)
    if not isinstance(message.content, str) and any(block.get("type") != "text" for block in message.content):
        state.screen.warn(f"the images of #{message.position} cannot be sent from here")
    if state.lines is None:
        state.screen.say(printable(text))
    else:
        state.draft = f"/{text}" if text.startswith("/") else text


def _text_of(message: MessageOut) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(block["text"]) for block in message.content if "text" in block)
