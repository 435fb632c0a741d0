"""The chat commands that look into the history: searching it, and reading it at a position."""

from rich.text import Text

from app.cli.chat_state import ChatState, session_of
from app.cli.printable import CONTROL, printable
from app.cli.replies import HitReply
from app.domain.errors import InvalidInput

SHOWN_HITS = 10
AROUND = 2
"""Messages shown before and after the one that `/read` names."""

LARGEST_POSITION = 2**31 - 1


async def search(state: ChatState, words: str) -> None:
    """Print the messages of the session that match, with their positions."""
    session = session_of(state)
    if not words:
        raise InvalidInput("Write /search with the words to look for.")
    found = await state.client.search(session.id, words, limit=SHOWN_HITS)
    if not found:
        state.screen.say("Nothing was found. Try other words, or fewer of them.")
        return
    for hit in found:
        state.screen.draw(draw_hit(hit))
    state.screen.note(f"/read {found[0].message.position} shows it with what stands around it")


def draw_hit(hit: HitReply, *, names_session: bool = False) -> Text:
    """Return the position, who said it, and the snippet with its matches in bold."""
    message = hit.message
    who = f"{message.role} {message.name}" if message.name else message.role
    where = f"{hit.session_id} " if names_session else ""
    return Text("").join([
        Text(f"{printable(where)}#{message.position} {printable(who)} ", style="cyan"),
        _snippet(hit),
    ])


def span_of(argument: str) -> tuple[int, int]:
    """Return the positions that `12`, `#12` or `12-20` name. Raises InvalidInput."""
    first, _, last = argument.replace("#", "").partition("-")
    ends = [part.strip() for part in (first, last or first)]
    if not all(map(_is_position, ends)):
        raise InvalidInput("Write /read with a message's number, or with two: /read 12 or /read 12-20.")
    low, high = sorted(int(part) for part in ends)
    return (low, high) if last else (max(low - AROUND, 1), high + AROUND)


def _is_position(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= LARGEST_POSITION


def _snippet(hit: HitReply) -> Text:
    """Control characters are replaced one for one, so that the places of the matches stay right."""
    shown = Text(CONTROL.sub("\N{REPLACEMENT CHARACTER}", hit.snippet.replace("\n", " ")))
    for start, end in hit.highlights:
        shown.stylize("bold", start, end)
    return shown
