"""Links from the citations in an answer to the messages of the channel that they stand for."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from throughline.context.find_citations import find_citations
from throughline.context.markdown.code_spans import spans
from throughline.db.sessions.citations import CitationReader
from throughline.db.slack.outbox import Delivery
from throughline.domain.citation import Citation, CitationStatus
from throughline.domain.run import Run
from throughline.slack.sent_messages import DeliveryServices

_Key: TypeAlias = tuple[int, int, str]


class CitedLinks:
    """Links of one answer's citations.

    A citation keeps its link while the answer grows, because a text that begins differently is written again.
    """

    def __init__(self, services: DeliveryServices, delivery: Delivery) -> None:
        self._services = services
        self._delivery = delivery
        self._links: dict[_Key, str] = {}

    async def linked(self, run: Run, text: str) -> str:
        """Return the Markdown `text` of the run's answer with links from valid citations `[#12]` to Slack messages.

        A citation stays without a link if the cited message is not known to be posted in this channel.

        Citations that are seen for the first time are looked up in two SQL statements; the others need none.
        """
        citations = find_citations(text)
        if any(_key(citation) not in self._links for citation in citations):
            await self._look_up(run, text, citations)
        return _with_links(text, citations, self._links)

    async def _look_up(self, run: Run, text: str, citations: Sequence[Citation]) -> None:
        reader = CitationReader(run.session_id, run.owner_id, run.owner_id)
        (checked,) = await self._services.citations.check(reader, [text])
        new = {
            _key(citation): result.status is CitationStatus.VALID and result.session_id == run.session_id
            for citation, result in zip(citations, checked, strict=True)
            if _key(citation) not in self._links
        }
        positions = {first for (first, _, _), is_readable in new.items() if is_readable}
        outbox, identity = self._services.outbox, self._services.identity
        posted = await outbox.posted_messages(self._delivery, run.session_id, positions)
        for key, is_readable in new.items():
            message = posted.get(key[0]) if is_readable else None
            self._links[key] = (
                identity.permalink(self._delivery.channel_id, message.ts, message.thread_ts) if message else ""
            )


def _key(citation: Citation) -> _Key:
    return citation.from_position, citation.to_position, f"{citation.session_id or ''} {citation.quotation}"


def _with_links(text: str, citations: Sequence[Citation], links: Mapping[_Key, str]) -> str:
    pieces, at = list[str](), 0
    for citation in citations:
        link = links[_key(citation)]
        if link and _may_be_link(text, citation):
            pieces += text[at : citation.end + 1], f"({link})"
            at = citation.end + 1
    return "".join((*pieces, text[at:]))


def _may_be_link(text: str, citation: Citation) -> bool:
    """Return whether nothing else is in the brackets, and a link after them changes nothing around them.

    A table is shown as aligned text, in which an address would take the room of the words. A citation behind an open
    code span may become code when later text ends the span.
    """
    start, end = citation.start - 1, citation.end + 1
    line_end = text.find("\n", end)
    line = text[text.rfind("\n", 0, start) + 1 : len(text) if line_end < 0 else line_end]
    is_whole = text[start] == "[" and text[citation.end : end] == "]" and text[end : end + 1] != "]"
    _, may_become_code = spans(text[text.rfind("\n\n", 0, start) + 1 : start])
    return is_whole and not text.endswith("\\", 0, start) and "|" not in line and not may_become_code
