"""Fills a session of the running service with rows, as a long conversation would have left them."""

from datetime import UTC, datetime
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from throughline.context.measure import count_message
from throughline.domain.message import NewMessage, Role, Source
from throughline.llm.counters import make_counter

TEXT = (
    "The harbour office keeps its ledgers by the week, and whoever wants to know when a ship came in asks there first; "
    "the answer is copied into the log with the number of the page it was found on."
)
SUMMARY = "## State\n" + "\n".join(f"- [#{number}] {TEXT[:90]}" for number in range(1, 20))

_INSERT = """
insert into messages (id, session_id, position, role, content, source, token_count, counter, created_at)
select gen_random_uuid(), $1, position, case position % 2 when 1 then 'user' else 'assistant' end,
    position || ': ' || $2, 'api', $3, $4, $5
from generate_series(1, $6::int) as position
"""
_COUNT = "update sessions set message_count = $2::int, message_tokens = $2::bigint * $3 where id = $1"
_SUMMARISE = """
update sessions s set conversation_summary = $3, summary_tokens = $4, summary_version = 1,
    summary_through_position = m.position, summary_through_id = m.id
from messages m where s.id = $1 and m.session_id = s.id and m.position = $2
"""


async def fill_session(connection: asyncpg.Connection, session_id: str, before: int, after: int) -> None:
    """Give the session `before` rows up to its cursor and `after` rows behind it."""
    counter = make_counter("tiktoken")
    tokens = count_message(NewMessage(Role.USER, f"1000: {TEXT}", Source.API), counter.count)
    session, total = UUID(session_id), before + after
    await connection.execute(_INSERT, session, TEXT, tokens, counter.name, datetime.now(UTC), total)
    await connection.execute(_COUNT, session, total, tokens)
    if before:
        await connection.execute(_SUMMARISE, session, before, SUMMARY, counter.count(SUMMARY))
    await connection.execute("vacuum (analyze) messages, sessions, runs, run_events")  # no dead rows of earlier cells
