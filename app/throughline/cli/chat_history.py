"""Chat commands for the history: its newest messages, messages at a position, and search."""

from collections.abc import Sequence

from throughline.cli.chat_citations import remark_on
from throughline.cli.chat_state import ChatState, session_of
from throughline.cli.history_views import draw_hit, draw_message
from throughline.cli.printable import one_line
from throughline.domain.errors import InvalidInput
from throughline.wire.messages import CitedMessageOut

SHOWN_MESSAGES = 20
MOST_MESSAGES = 10_000
SHOWN_HITS = 10
AROUND = 2
"""Messages shown before and after the one that `/read` names."""

LARGEST_POSITION = 2**31 - 1


async def show_history(state: ChatState, argument: str) -> None:
    """Print the newest messages, 20 if no number is given, and only the first lines of the long ones."""
    limit = _number(argument, default=SHOWN_MESSAGES)
    _show(state, await state.client.newest_messages(session_of(state).id, limit=limit), shortened=True)


async def read(state: ChatState, argument: str) -> None:
    """Print the message at a position and those around it, or the messages between two positions."""
    first, last = _span_of(argument)
    messages = await state.client.messages_between(session_of(state).id, first, last)
    if not messages:
        raise InvalidInput(f"There is no message #{first}. /history shows the numbers.")
    _show(state, messages)


async def show_reasoning(state: ChatState, argument: str) -> None:
    """Print the reasoning before the message at a position, or before the newest message that has any."""
    through = _position_of(argument) if argument else LARGEST_POSITION - 1
    found = await state.client.last_with_reasoning(session_of(state).id, through)
    if found is None or (argument and found.position != through):
        raise InvalidInput("There is no reasoning to show. The model sent none, or the agent does not show it.")
    state.screen.note(f"before #{found.position}")
    state.screen.say(found.reasoning or "", style="dim")


async def search(state: ChatState, words: str) -> None:
    """Print the messages of the session that match, with their positions."""
    session = session_of(state)
    if not words:
        raise InvalidInput("Write /search with the words to find.")
    found = await state.client.search(session.id, words, limit=SHOWN_HITS)
    if not found:
        state.screen.say("Nothing was found. Try other words, or fewer of them.")
        return
    for hit in found:
        state.screen.draw(draw_hit(hit))
    state.screen.note(f"/read {found[0].message.position} shows it with its neighbours")


def _show(state: ChatState, messages: Sequence[CitedMessageOut], *, shortened: bool = False) -> None:
    """Print the messages, and how to read what they cite."""
    for message in messages:
        state.screen.draw(draw_message(message, shortened=shortened))
    remark_on(state, [citation for message in messages for citation in message.citations])


def _number(argument: str, *, default: int) -> int:
    if not argument:
        return default
    if not argument.isdecimal() or not 1 <= int(argument[:9]) <= MOST_MESSAGES:
        raise InvalidInput(f"{one_line(argument, limit=20)!r} is not a number from 1 to {MOST_MESSAGES}.")
    return int(argument)


def _position_of(argument: str) -> int:
    position = argument.removeprefix("#")
    if not _is_position(position):
        raise InvalidInput("Write /reasoning with a message's number: /reasoning 12.")
    return int(position)


def _span_of(argument: str) -> tuple[int, int]:
    """Return the first and last position for `12`, `#12` or `12-20`. Raises InvalidInput.

    A single position is extended by AROUND messages on each side.
    """
    first, _, last = argument.replace("#", "").partition("-")
    ends = [part.strip() for part in (first, last or first)]
    if not all(map(_is_position, ends)):
        raise InvalidInput("Write /read with a message's number, or with two: /read 12 or /read 12-20.")
    low, high = sorted(int(part) for part in ends)
    return (low, high) if last else (max(low - AROUND, 1), high + AROUND)


def _is_position(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= LARGEST_POSITION
