"""Messages stored past the turns that would make them, all behind a summary that tells nothing of them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fakes.raw_sql import run_sql
from throughline.domain.basic_types import SessionId

_INSERT = """
insert into messages (id, session_id, position, role, content, author, source, token_count, counter)
select gen_random_uuid(), $1, m.position, m.role, m.content, m.author, 'api', 1000, 'chars'
from unnest($2::integer[], $3::text[], $4::text[], $5::text[]) as m (position, role, content, author)
"""
_SUMMARISE = """
update sessions s set message_count = m.position, conversation_summary = 'They talked about all kinds of things.',
    summary_tokens = 20, summary_version = 1, summary_through_position = m.position, summary_through_id = m.id
from messages m where s.id = $1 and m.session_id = s.id and m.position = $2
"""


async def fill_summarised(
    database_url: str,
    session_id: SessionId,
    rows: Sequence[tuple[int, str, str]],
    authors: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Store rows of position, role and text in an empty session, and let its summary cover them all.

    `authors` has the names of authors by position.
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    await run_sql(database_url, _INSERT, session_id, *columns, [authors.get(position) for position, *_ in rows])
    await run_sql(database_url, _SUMMARISE, session_id, len(rows))
