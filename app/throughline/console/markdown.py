"""Markdown of answers as HTML that cannot run anything: no HTML of the text, no pictures from elsewhere, safe links.

Citations such as `[#12]` become links to the message.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape

from throughline.context.find_citations import places_in
from throughline.domain.recall import Citation
from throughline.execution.compute_threads import run_off_loop_if_large

MOST_CHARACTERS = 20_000
"""Longest text that is read as Markdown; a longer one is shown as it is. The parser takes more than linear time."""

MOST_CELLS = 5_000
"""Most cells of tables of one text: the parser fills each row up to the number of columns."""

MOST_OPENING = 2_000
"""Most brackets, and most marks of quotes, of one text: the parser looks for the end of each."""

SCROLL = '<div class="scroll" role="region" tabindex="0" aria-labelledby="table-word">'
"""Opening tag of a table's scroll region, which takes the focus. Its name is the element `table-word` of the page."""

LARGE = 500
"""Characters from which a text is read off the event loop."""

OUTSIDE = {"target": "_blank", "rel": "noopener noreferrer nofollow"}


async def html_of(text: str, session_id: str) -> Markup:
    """Return the text as HTML. Citations lead to messages of this session, unless they name another one."""
    if len(text) > MOST_CHARACTERS or _is_costly(text):
        return plain_html(text)
    environment = {"session": session_id}
    html = await run_off_loop_if_large(len(text), lambda: _parser().render(text, environment), large=LARGE)
    return Markup(html)  # noqa: S704  # the parser escapes all of the text


def _is_costly(text: str) -> bool:
    """Return whether the parser would take long: for a wide table, or for many brackets or quotes."""
    columns = max((line.count("|") for line in text.splitlines()), default=0)
    is_wide = columns * text.count("\n") > MOST_CELLS and "-|" in text.replace(" ", "").replace(":", "")
    return is_wide or max(text.count("["), text.count(">"), text.count("*"), text.count("_")) > MOST_OPENING


def plain_html(text: str) -> Markup:
    """Return the text as HTML that shows it as it is."""
    return Markup('<div class="plain">{}</div>').format(text)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.core.ruler.after("inline", "citations", _link_citations)
    parser.add_render_rule("link_open", _outside_link)
    parser.add_render_rule("image", _picture)
    parser.add_render_rule("table_open", lambda *_: f"{SCROLL}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


def _outside_link(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    at: int,
    options: OptionsDict,
    environment: MutableMapping[str, Any],
) -> str:
    if not tokens[at].meta.get("is_citation"):
        tokens[at].attrs.update(OUTSIDE)
    return renderer.renderToken(tokens, at, options, environment)


def _picture(_renderer: RendererHTML, tokens: Sequence[Token], at: int, *_: object) -> str:
    """Return a picture that the text contains itself; for one from elsewhere a link: loading tells of readers."""
    source, name = str(tokens[at].attrs.get("src", "")), tokens[at].content
    if source.startswith("data:image/"):
        return Markup('<img src="{}" alt="{}">').format(source, name)
    attributes = Markup(" ").join(Markup('{}="{}"').format(*pair) for pair in OUTSIDE.items())
    return Markup('<a href="{}" {}>{}</a>').format(source, attributes, name or source)


def _link_citations(state: StateCore) -> None:
    for block in state.tokens:
        if block.children:
            block.children = [part for token in block.children for part in _with_links(token, state.env["session"])]


def _with_links(token: Token, session_id: str) -> Iterator[Token]:
    """Yield the pieces of a token of text, each citation as a link; other tokens as they are."""
    if token.type != "text":
        yield token
        return
    at = 0
    for place in places_in(token.content):
        yield _text(token.content[at : place.start])
        yield from _citation(token.content[place.start : place.end], place, session_id)
        at = place.end
    yield _text(token.content[at:])


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _citation(content: str, place: Citation, session_id: str) -> Iterator[Token]:
    if not place.from_position:
        yield _text(content)
        return
    address = f"sessions/{escape(place.session_id or session_id)}?at={place.from_position}"
    yield Token("link_open", "a", 1, attrs={"href": address, "class": "citation"}, meta={"is_citation": True})
    yield _text(content)
    yield Token("link_close", "a", -1)
