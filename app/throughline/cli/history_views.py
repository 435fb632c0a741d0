"""Drawing of messages of the history and of search results."""

from rich.text import Text

from throughline.cli.citation_views import draw_cited
from throughline.cli.printable import CONTROL, one_line, printable
from throughline.wire.messages import CitedMessageOut, HitOut, MessageOut

SHOWN_TOOL_TEXT = 160
PIN = "📌"


def text_of(message: MessageOut) -> str:
    """Return the text of a message, with `[image]` in place of an image."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(str(block.get("text", f"[{block.get('type', 'block')}]")) for block in message.content)


def draw_message(message: CitedMessageOut) -> Text:
    """Return a message with its position and its citations marked; a tool's result is cut to one line."""
    pinned = f"{PIN} " if message.pinned else ""
    style = "bold" if message.role == "user" else "cyan"
    head = Text(f"#{message.position} {pinned}{printable(_speaker(message))} ", style=style)
    if message.role == "tool":
        return head + Text(one_line(text_of(message), limit=SHOWN_TOOL_TEXT), style="dim")
    calls = [
        Text(f"\n  calls {one_line(f'{call.name} {call.arguments}', limit=SHOWN_TOOL_TEXT)}", style="dim")
        for call in message.tool_calls
    ]
    return Text("").join([head, draw_cited(text_of(message), message.citations), *calls])


def draw_hit(hit: HitOut, *, names_session: bool = False) -> Text:
    """Return a search result: the position, the author, and the snippet with its matches in bold."""
    where = f"{hit.session_id} " if names_session else ""
    head = f"{printable(where)}#{hit.message.position} {printable(_speaker(hit.message))} "
    return Text("").join([Text(head, style="cyan"), _snippet(hit)])


def _speaker(message: MessageOut) -> str:
    return f"{message.role} {message.name}" if message.name else message.role


def _snippet(hit: HitOut) -> Text:
    """Return the snippet with its matches in bold.

    Control characters are replaced one for one, so that the offsets of the matches stay valid.
    """
    shown = Text(CONTROL.sub("\N{REPLACEMENT CHARACTER}", hit.snippet.replace("\n", " ")))
    for start, end in hit.highlights:
        shown.stylize("bold", start, end)
    return shown
