"""JSON shapes of messages and of search results."""

from typing import Annotated, TypeAlias, get_args

from pydantic import BeforeValidator, Field, JsonValue

from throughline.domain.message import ImageBlock, Role, Source, TextBlock
from throughline.domain.reasoning import Reasoning
from throughline.domain.recall import CheckedCitation, CitationStatus, FoundBy, Hit, SearchResult
from throughline.wire.json_shape import Id, JsonDict, Shape, Time, one_of

CITATIONS = "the first 50 citations of the text, in their order"
"""Description of a field with the citations of a text."""


class CitationOut(Shape):
    """A citation in a text, such as `[#12]` or `[#12-#40]`, checked when the text was read."""

    start: int = Field(description="first character of `#12-#40` in the text, counted in Unicode code points from 0")
    end: int = Field(description="the character after the last one")
    from_position: int
    to_position: int = Field(description="the same as `from_position` for one message")
    session_id: Id = Field(description="the session of the messages: the text's own unless the citation names another")
    status: Annotated[str, one_of(*CitationStatus)] = Field(
        description="quotation_not_found: the messages exist, and do not contain the quotation beside the citation"
    )


def citation_json(citation: CheckedCitation) -> JsonDict:
    """Return a citation as JSON in the shape of `CitationOut`.

    This is about 10 µs faster than `CitationOut.render`; a page may have thousands of citations.
    """
    return {
        "start": citation.start,
        "end": citation.end,
        "from_position": citation.from_position,
        "to_position": citation.to_position,
        "session_id": str(citation.session_id),
        "status": citation.status.value,
    }


MOST_INCOMPLETE = 20
"""Most sessions that a search result names as not completely searched."""


class ToolCallOut(Shape):
    """A tool call; `arguments` is the text that the model wrote."""

    id: str
    name: str
    arguments: str


def _block_json(block: object) -> object:
    match block:
        case TextBlock(text=text):
            return {"type": "text", "text": text}
        case ImageBlock(url=url, detail=detail):
            return {"type": "image", "url": url, "detail": detail}
        case _:
            return block


def _content_json(content: object) -> object:
    return [_block_json(block) for block in content] if isinstance(content, tuple) else content


def _reasoning_json(reasoning: object) -> object:
    return reasoning.text if isinstance(reasoning, Reasoning) else reasoning


ReasoningText: TypeAlias = Annotated[str | None, BeforeValidator(_reasoning_json)]


class MessageOut(Shape):
    """A stored message."""

    id: Id
    position: int = Field(description="1, 2, 3 … in its session")
    role: Annotated[str, one_of(*Role)]
    content: Annotated[str | list[dict[str, JsonValue]], BeforeValidator(_content_json)] = Field(
        description="text, or blocks: {type: text | image, …}"
    )
    tool_calls: list[ToolCallOut]
    tool_call_id: str | None = Field(description="in a tool's result: the id of its call")
    name: str | None = Field(description="in a tool's result: the name of the tool")
    run_id: Id | None
    author: str | None
    token_count: int
    source: Annotated[str, one_of(*Source)]
    pinned: bool
    created_at: Time
    metadata: dict[str, JsonValue]


class ExportedMessage(MessageOut):
    """A stored message as an export has it: with its reasoning, if users may read it."""

    reasoning: ReasoningText = None


class CitedMessageOut(MessageOut):
    """A stored message as the history returns it: with citations and reasoning, which only an assistant's has."""

    reasoning: ReasoningText = Field(
        None, description="what the model wrote before this message, with `include=reasoning`; null if there is none"
    )
    citations: list[CitationOut] = Field(
        default_factory=list, description=f"{CITATIONS}; of several blocks: in their texts joined by line feeds"
    )


class MessagePage(Shape):
    """A page of messages, ordered by position."""

    data: list[CitedMessageOut]
    next_cursor: str | None = Field(description="send it as `cursor` for the next page; null on the last page")


class MessageCopyOut(Shape):
    """Where a copy of a message is."""

    session_id: Id
    position: int


class RedactedMessageOut(MessageOut):
    """A redacted message, with the copies that imports of an export have made of it."""

    copies: list[MessageCopyOut] = Field(
        description="copies in sessions that a user has imported: they keep the text until they are redacted themselves"
    )


class PinnedGroup(Shape):
    """The messages of a pin: the named message, and for a tool call all its results."""

    data: list[MessageOut]


class HitOut(Shape):
    """A message that matches a search."""

    session_id: Id
    score: float = Field(description="comparable within one response; 0 if nothing was ranked")
    snippet: str = Field(description="the best matching part of the text, on one line")
    highlights: list[tuple[int, int]] = Field(description="the matching ranges in the snippet: from, to")
    link: str = Field(description="the message as the history returns it")
    message: MessageOut


class SearchOut(Shape):
    """The result of a search, the best matches first."""

    data: list[HitOut]
    by: Annotated[str, one_of(*get_args(FoundBy))] = Field(
        description="`vector`: by meaning and words combined; `text`: by words alone"
    )
    is_complete: bool = Field(description="false if some messages could not be searched in time")
    incomplete_sessions: list[Id] = Field(
        default_factory=list,
        max_length=MOST_INCOMPLETE,
        description="ids of up to 20 sessions with such messages; they are being indexed, so search again soon",
    )
    incomplete_session_count: int = Field(0, description="number of all such sessions")


def search_json(found: SearchResult) -> JsonDict:
    """Return the result of a search as JSON in the shape of `SearchOut`."""
    incomplete = found.incomplete_sessions
    return {
        "data": [_hit_json(hit) for hit in found.hits],
        "by": found.by,
        "is_complete": not incomplete,
        "incomplete_sessions": [str(session_id) for session_id in incomplete[:MOST_INCOMPLETE]],
        "incomplete_session_count": len(incomplete),
    }


def _hit_json(hit: Hit) -> JsonDict:
    session_id, position = hit.message.session_id, hit.message.position
    return HitOut.render({
        "session_id": session_id,
        "score": hit.score,
        "snippet": hit.snippet,
        "highlights": hit.highlights,
        "link": f"/v1/sessions/{session_id}/messages?after={position - 1}&limit=1",
        "message": hit.message,
    })
