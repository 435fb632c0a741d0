"""Rendering of messages and summary versions with the citations in their texts."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from throughline.api.http.admitted_request import Call
from throughline.db.sessions.citations import CitationReader
from throughline.domain.ids import SessionId
from throughline.wire.json_shape import JsonDict, Shape
from throughline.wire.messages import citation_json

T = TypeVar("T")


async def render_cited(
    call: Call, session_id: SessionId, values: Sequence[T], shape: type[Shape], text_of: Callable[[T], str]
) -> list[JsonDict]:
    """Return each value as JSON in `shape`, with the checked citations in the text that `text_of` returns for it.

    The citations of all values are checked together. The caller must have read the session as the call's owner before.
    """
    reader = CitationReader(session_id, call.owner_id, None if call.is_limited else call.principal.user_id)
    checked = await call.services.database.citations.check(reader, [text_of(value) for value in values])
    return [
        {**shape.render(value), "citations": [citation_json(citation) for citation in citations]}
        for value, citations in zip(values, checked, strict=True)
    ]
