"""What our search is held against: plain BM25 from a library, and PostgreSQL's own full text as one first builds it."""

from collections.abc import Callable, Sequence
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # it ships no types
import bm25s  # type: ignore[import-untyped]  # it ships no types
import snowballstemmer  # type: ignore[import-untyped]  # ships no types

from benchmarks.retrieval_data import Line, Meeting
from benchmarks.retrieval_recall import CUTS

FIRST_BUILT = """
create table if not exists first_built (
    session_id uuid not null, position integer not null, words tsvector not null, primary key (session_id, position)
);
create index if not exists first_built_words on first_built using gin (words);
"""
_FILL = """
insert into first_built select session_id, position, to_tsvector('english', coalesce(author, '') || ' ' || content)
from messages where session_id = $1
"""
_FIND = """
select f.position from first_built f,
    to_tsquery('english', replace(cast(plainto_tsquery('english', $2) as text), '&', '|')) asked
where f.session_id = $1 and f.words @@ asked order by ts_rank_cd(f.words, asked) desc, f.position limit $3
"""


def library_search(meeting: Meeting, *, with_speaker: bool) -> Callable[[str], Sequence[int]]:
    """Return a search by bm25s as it comes, with English stop words and stems; nothing of no score is found."""
    stem = snowballstemmer.stemmer("english").stemWords
    retriever = bm25s.BM25()
    texts = [_text(line, with_speaker=with_speaker) for line in meeting.lines]
    retriever.index(bm25s.tokenize(texts, stopwords="en", stemmer=stem, show_progress=False), show_progress=False)
    most = min(max(CUTS), len(texts))

    def search(question: str) -> Sequence[int]:
        asked = bm25s.tokenize([question], stopwords="en", stemmer=stem, show_progress=False)
        found, scores = retriever.retrieve(asked, k=most, show_progress=False)
        return [int(line) for line, score in zip(found[0], scores[0], strict=True) if score > 0]

    return search


async def fill_first_built(connection: asyncpg.Connection, session_id: UUID) -> None:
    """Index a session's messages with PostgreSQL's own full text."""
    await connection.execute(FIRST_BUILT)
    await connection.execute(_FILL, session_id)


async def search_first_built(connection: asyncpg.Connection, session_id: UUID, question: str) -> list[int]:
    """Return the lines PostgreSQL's own full text finds: any of the words, ranked by `ts_rank_cd`."""
    rows = await connection.fetch(_FIND, session_id, question, max(CUTS))
    return [row["position"] - 1 for row in rows]


def _text(line: Line, *, with_speaker: bool) -> str:
    return f"{line.speaker}: {line.text}" if with_speaker else line.text
