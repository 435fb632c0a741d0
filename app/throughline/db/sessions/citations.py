"""Checks of citations in answers and summaries against the stored messages, when the texts are read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeAlias

from throughline.context.find_citations import MARK, contains_quotation, find_citations, fold_text
from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import MESSAGE_COLUMNS, message_from
from throughline.db.statements.sql import sql
from throughline.domain.basic_types import SessionId, UserId
from throughline.domain.message import searched_text
from throughline.domain.recall import CheckedCitation, Citation, CitationStatus
from throughline.execution.compute_threads import run_off_loop_if_large

MOST_QUOTED_SPAN = 50
"""Largest number of cited messages in which a quotation is searched."""

MOST_COMPARED_MESSAGES, MOST_COMPARED_BYTES = 500, 4_000_000
"""Most messages, and most bytes of them, that are loaded to be compared with the quotations of one request."""

_CITED = sql(
    """
    with readable as (
        select s.id, s.message_count from sessions s
        where s.id = any(cast(:session_ids as uuid[]))
            and (s.owner_id = :reader_id or (s.id = :session_id and s.owner_id = :owner_id))
    ), quoted as (
        select {message_columns}, sum(
            coalesce(octet_length(m.content), octet_length(cast(m.content_blocks as text)))
            + octet_length(cast(m.tool_calls as text))) over (order by q.number) as bytes
        from unnest(cast(:quoted_ids as uuid[]), cast(:quoted_positions as integer[]))
            with ordinality as q (session_id, position, number)
        join readable r on r.id = q.session_id
        join messages m on m.session_id = q.session_id and m.position = q.position
    )
    select r.id as readable_id, r.message_count, m.* from readable r
    left join quoted m on m.session_id = r.id and m.bytes <= :most_bytes
""",
    message_columns=MESSAGE_COLUMNS,
)
MOST_COMPARED_CHARACTERS = 20_000_000
"""Most characters of messages with which the quotations of one request are compared."""

_Place: TypeAlias = tuple[SessionId, int]


@dataclass(frozen=True, slots=True)
class CitationReader:
    """The reader of texts of a session: `owner_id` owns the session, `reader_id` is the owner or a participant.

    A participant sees only this session of the owner, and a reader whose `reader_id` is None sees no other session at
    all. Citations of the owner's other sessions are checked for the owner alone.
    """

    session_id: SessionId
    owner_id: UserId
    reader_id: UserId | None


@dataclass(slots=True)
class _Stored:
    """The stored data for a check: the number of messages of each readable session, and the texts of quoted messages.

    `characters_left` limits what is compared, because many citations may name the same long messages.
    """

    counts: Mapping[SessionId, int]
    texts: Mapping[_Place, str]
    characters_left: int = MOST_COMPARED_CHARACTERS
    _folded: dict[tuple[_Place, ...], str] = field(default_factory=dict)

    def folded(self, places: tuple[_Place, ...]) -> str | None:
        """Return the messages' joined text, normalised for the comparison with a quotation.

        None if `places` is empty, a message is not loaded, or the limit of compared characters is reached.
        """
        if not places or any(place not in self.texts for place in places):
            return None
        self.characters_left -= sum(len(self.texts[place]) for place in places)
        if self.characters_left < 0:
            return None
        if places not in self._folded:
            self._folded[places] = fold_text("\n".join(self.texts[place] for place in places))
        return self._folded[places]


class CitationRepository:
    """The check of citations, which reads the messages that they name."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    async def check(self, reader: CitationReader, texts: Sequence[str]) -> tuple[tuple[CheckedCitation, ...], ...]:
        """Return the checked citations of each text, in the order of `texts`; empty for a text without a citation.

        One statement reads the messages for all texts; none is run if no text has a citation.
        A message that the reader may not read does not exist for the check. A quotation is not compared with more than
        MOST_QUOTED_SPAN messages, nor beyond the limits of one request. Such a citation is valid if its messages exist.
        """
        characters = sum(len(text) for text in texts if MARK in text)
        found = await run_off_loop_if_large(characters, lambda: [find_citations(text) for text in texts])
        if not any(found):
            return ((),) * len(texts)
        stored = await self._load(reader, [citation for of_text in found for citation in of_text])
        check = partial(_checked, stored, reader.session_id)
        return await run_off_loop_if_large(
            sum(map(len, stored.texts.values())), lambda: tuple(tuple(map(check, of_text)) for of_text in found)
        )

    async def _load(self, reader: CitationReader, citations: Sequence[Citation]) -> _Stored:
        quoted = list(islice(dict.fromkeys(_quoted_places(reader.session_id, citations)), MOST_COMPARED_MESSAGES))
        rows = await self._statements.fetch(
            _CITED,
            session_id=reader.session_id,
            owner_id=reader.owner_id,
            reader_id=reader.reader_id,
            session_ids=list({citation.session_id or reader.session_id for citation in citations}),
            quoted_ids=[session_id for session_id, _ in quoted],
            quoted_positions=[position for _, position in quoted],
            most_bytes=MOST_COMPARED_BYTES,
        )
        counts = {SessionId(row["readable_id"]): int(row["message_count"]) for row in rows}
        return _Stored(counts, dict(_texts_of(rows)))


def _quoted_places(session_id: SessionId, citations: Iterable[Citation]) -> Iterable[_Place]:
    for citation in citations:
        if citation.quotation:
            yield from _places_of(session_id, citation)


def _places_of(session_id: SessionId, citation: Citation) -> Iterable[_Place]:
    """Return the messages with which the quotation is compared; none if they are too many."""
    positions = range(citation.from_position, citation.to_position + 1)
    if len(positions) > MOST_QUOTED_SPAN:
        return ()
    return ((citation.session_id or session_id, position) for position in positions)


def _texts_of(rows: Iterable[Row]) -> Iterable[tuple[_Place, str]]:
    for row in rows:
        if row["id"] is not None:
            message = message_from(row)
            yield (message.session_id, message.position), searched_text(message)


def _checked(stored: _Stored, session_id: SessionId, citation: Citation) -> CheckedCitation:
    return CheckedCitation(
        citation.start,
        citation.end,
        citation.from_position,
        citation.to_position,
        citation.session_id or session_id,
        _status(stored, session_id, citation),
    )


def _status(stored: _Stored, session_id: SessionId, citation: Citation) -> CitationStatus:
    count = stored.counts.get(citation.session_id or session_id, 0)
    if not 1 <= citation.from_position <= citation.to_position <= count:
        return CitationStatus.NO_SUCH_MESSAGE
    folded = stored.folded(tuple(_places_of(session_id, citation))) if citation.quotation else None
    if folded is None or contains_quotation(folded, citation.quotation):
        return CitationStatus.VALID
    return CitationStatus.QUOTATION_NOT_FOUND
