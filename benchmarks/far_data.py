"""Fills a database with as many messages as a service has after a year, for `benchmarks.far`.

The service's own code indexes a few hundred sessions, whose texts are words of recorded meetings; SQL copies them. Each
session has 100 messages of 50 ended runs, a summary of the first 80 and its entries in the search index. Sessions begin
one after another and overlap, so that the rows of one lie among those of others.
"""

import json
import random
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]  # ships no types

from benchmarks.replay_data import SAMPLE
from benchmarks.retrieval_readers import read_kinds
from throughline.db.search.analyzer import Analyzer
from throughline.db.search.entries import ENTRY_VERSION, BlockEntries, IndexedMessage
from throughline.db.tables.runs import MODEL_CALLS, RUN_EVENTS
from throughline.domain.basic_types import SessionId

OWNER = "local"
"""The first owner, who is that of requests without an API key."""

AGENT = "far"
SESSIONS_PER_OWNER = 50
TEMPLATES = 500
SESSIONS_AT_ONCE = 1_000
TURNS, SUMMARIZED = 50, 80
"""Turns of each session, and the position up to which it is summarized."""

USER_WORDS, ANSWER_WORDS = (15, 45), (35, 75)
ANALYZER = Analyzer("english")
BETWEEN = timedelta(days=365) / 100_000
"""The time from the beginning of one session to that of the next: 100,000 of them are those of a year."""

LAST_SESSION = timedelta(hours=2)
EVENT_DAYS = 3
"""Runs of so many days have events, at most."""

_PREPARE = f"""
    create function pg_temp.far_id(kind integer, began bigint, number bigint, turn integer, place integer) returns uuid
    language sql immutable as $$
        select cast(lpad(to_hex(began + turn * 60000), 12, '0') || '7' || lpad(to_hex(kind), 3, '0') || '8'
            || lpad(to_hex(number * 1000 + place), 15, '0') as uuid)
    $$;
    create function pg_temp.far_time(began bigint, turn integer) returns timestamptz
    language sql immutable as 'select to_timestamp((began + turn * 60000) / 1000.0)';
    create temp table far_texts (template integer, place integer, content text, primary key (template, place));
    create temp table far_terms (template integer, term text collate "C", entries integer[],
        primary key (template, term));
    create temp table far_sessions (number bigint, id uuid, owner_id uuid, template integer, began bigint);
    create temp view far_turns as select s.*, turn, pg_temp.far_id(2, began, number, turn, turn) as run_id,
        pg_temp.far_time(began, turn) as at from far_sessions s cross join generate_series(1, {TURNS}) turn;
"""
_SUM_UP = """
    create temp table far_templates as
    select template, sum(length(content) / 4 + 4) as tokens, '## State' || string_agg(E'\\n- ' || left(content, 90), ''
        order by place) filter (where place <= 20) as summary from far_texts group by template;
    analyze far_texts, far_terms, far_templates;
"""
_USERS = f"""
    insert into users (id, name)
    select pg_temp.far_id(9, 0, n, 0, 0), case n when 0 then '{OWNER}' else 'user-' || n end
    from generate_series(0, cast($1 as bigint) - 1) n
"""
_CHOOSE = f"""
    insert into far_sessions
    select n, pg_temp.far_id(0, began, n, 0, 0), pg_temp.far_id(9, 0, n % cast($3 as bigint), 0, 0),
        (n / cast($3 as bigint) + {SESSIONS_PER_OWNER} * (n % cast($3 as bigint))) % cast($4 as bigint), began
    from generate_series(cast($1 as bigint), cast($2 as bigint)) n
        cross join lateral (select cast($5 as bigint) + n * {BETWEEN // timedelta(milliseconds=1)} as began) b
"""
_THROUGH = f"pg_temp.far_id(1, began, number, {SUMMARIZED // 2}, {SUMMARIZED})"
_FILL = f"""
    analyze far_sessions;
    insert into sessions (id, owner_id, agent, title, source, message_count, message_tokens, input_tokens,
        output_tokens, conversation_summary, summary_tokens, summary_version, summary_through_position,
        summary_through_id, created_at, updated_at)
    select id, owner_id, '{AGENT}', left(summary, 40), 'api', {2 * TURNS}, tokens, 40 * tokens, tokens / 2, summary,
        length(summary) / 4, 1, {SUMMARIZED}, {_THROUGH}, pg_temp.far_time(began, 0), pg_temp.far_time(began, {TURNS})
    from far_sessions join far_templates using (template) order by number;
    insert into runs (id, session_id, owner_id, agent, status, input, source, author, worker, fence, attempt,
        input_tokens, output_tokens, context, created_at, started_at, finished_at)
    select run_id, id, owner_id, '{AGENT}', 'succeeded',
        json_build_object('content', content, 'metadata', '{{}}'::json), 'api', '{OWNER}',
        'host:1:0123abcd', 1, 1, 1474, 60,
        (select json_object_agg('tokens_of_part_' || n, 1000 * n) from generate_series(1, 32) n),
        at, at, at + interval '2 seconds'
    from far_turns t join far_texts x on x.template = t.template and x.place = 2 * turn - 1 order by at;
    insert into messages (id, session_id, position, role, content, run_id, step, author, source, token_count, counter,
        created_at)
    select pg_temp.far_id(1, began, number, turn, place), id, place, case when is_user then 'user' else 'assistant' end,
        content, pg_temp.far_id(2, began, number, turn, turn), case when is_user then 'user' else 'answer' end,
        case when is_user then '{OWNER}' end, 'api', length(content) / 4 + 4, 'tiktoken:cl100k_base',
        pg_temp.far_time(began, turn) + case when is_user then interval '0' else interval '2 seconds' end
    from far_sessions join far_texts using (template)
        cross join lateral (select (place + 1) / 2 as turn, place % 2 = 1 as is_user) t
    order by began + turn * 60000, place;
    insert into model_calls (id, owner_id, session_id, run_id, agent, model, purpose, input_tokens, output_tokens,
        cost_usd, created_at)
    select pg_temp.far_id(3, began, number, turn, turn), owner_id, id, run_id, '{AGENT}', 'openai:double-128k-cl100k',
        'answer', 1474, 60, 0.0012, at from far_turns order by at;
    insert into run_events (run_id, seq, type, data, created_at)
    select run_id, seq, case seq when 1 then 'run.started' when 9 then 'message.completed'
            when 10 then 'run.completed' else 'message.delta' end,
        json_build_object('message_id', pg_temp.far_id(1, began, number, turn, 2 * turn), 'text', 'some words'), at
    from far_turns cross join generate_series(1, 10) seq
    where pg_temp.far_time(began, 0) > date_trunc('day', now()) - interval '{EVENT_DAYS - 1} days' order by at, seq;
    insert into summaries (id, session_id, from_position, through_position, through_id, text, token_count, model,
        prompt_version, read_hash, input_tokens, output_tokens, duration_seconds, created_at)
    select pg_temp.far_id(4, began, number, 0, 0), id, 1, {SUMMARIZED}, {_THROUGH}, summary, length(summary) / 4,
        'offline', '1', md5(cast(id as text)), 4000, 400, 2, pg_temp.far_time(began, {SUMMARIZED // 2})
    from far_sessions join far_templates using (template);
    insert into summary_versions (id, session_id, version, state, segment_ids, text, token_count, through_id,
        through_position, model, base_version, created_at)
    select pg_temp.far_id(5, began, number, 0, 0), id, 1, 'adopted', array[pg_temp.far_id(4, began, number, 0, 0)],
        summary, length(summary) / 4, {_THROUGH}, {SUMMARIZED}, 'offline', 0,
        pg_temp.far_time(began, {SUMMARIZED // 2})
    from far_sessions join far_templates using (template);
    insert into search_blocks (session_id, from_position, through_position, term_count, analyzer)
    select id, 1, {2 * TURNS}, tokens / 2, '{ANALYZER.name}-{ENTRY_VERSION}'
    from far_sessions join far_templates using (template);
    insert into search_terms (session_id, term, from_position, entries)
    select id, term, 1, entries from far_sessions join far_terms using (template) order by id, term;
    truncate far_sessions;
"""
_FOREIGN_KEYS = """
    select format('alter table %s alter constraint %I ', k.conrelid::regclass, k.conname) as alter
    from pg_constraint k join pg_class c on c.oid = k.conrelid and c.relkind = 'r'
    where k.contype = 'f' and not c.relispartition
"""


async def fill(connection: asyncpg.Connection, sessions: int) -> None:
    """Fill an empty database of the newest schema with so many sessions."""
    owners, templates = max(1, sessions // SESSIONS_PER_OWNER), min(TEMPLATES, sessions)
    first = datetime.now(UTC) - LAST_SESSION - sessions * BETWEEN
    await connection.execute(_PREPARE)
    await _store_templates(connection, templates)
    await _make_partitions(connection, first)
    keys = [row["alter"] for row in await connection.fetch(_FOREIGN_KEYS)]
    for key in keys:
        await connection.execute(f"{key} not enforced")  # checked by one join at the end, and not for each row
    await connection.execute(_USERS, owners)
    for start in range(0, sessions, SESSIONS_AT_ONCE):
        last = min(start + SESSIONS_AT_ONCE, sessions) - 1
        await connection.execute(_CHOOSE, start, last, owners, templates, int(first.timestamp() * 1000))
        await connection.execute(_FILL)
    await connection.execute("analyze")
    for key in keys:
        await connection.execute(f"{key} enforced")


async def _store_templates(connection: asyncpg.Connection, count: int) -> None:
    """Store the texts and the index entries of so many sessions, the same at each call."""
    meetings = [meeting for halves in read_kinds([SAMPLE / "qmsum-questions"]).values() for meeting in halves.reported]
    words = [word for meeting in meetings for line in meeting.lines for word in re.findall(r"[A-Za-z']+", line.text)]
    choose, session, now = random.Random(1), SessionId(UUID(int=1)), datetime.now(UTC)
    for template in range(count):
        texts, entries = [], BlockEntries(1)
        for place in range(1, 2 * TURNS + 1):
            author, (least, most) = (OWNER, USER_WORDS) if place % 2 else (None, ANSWER_WORDS)
            text = " ".join(choose.choices(words, k=choose.randint(least, most))).capitalize() + "."
            entries.add(ANALYZER, IndexedMessage(session, place, text, author, now, is_answer=place % 2 == 0))
            texts.append((template, place, text))
        terms = [(template, term, json.loads(f"[{stored[1:-1]}]")) for term, stored in entries.rows()]
        await connection.copy_records_to_table("far_texts", records=texts)
        await connection.copy_records_to_table("far_terms", records=terms)
    await connection.execute(_SUM_UP)


async def _make_partitions(connection: asyncpg.Connection, first: datetime) -> None:
    """Make the partitions of the past: months of calls from the first session on, and days of events."""
    now = datetime.now(UTC)
    for table, days in ((RUN_EVENTS, EVENT_DAYS), (MODEL_CALLS, (now - first).days + 3)):
        starts = {table.period.start(now - timedelta(days=day)) for day in range(1, days)} - set(table.starts(now))
        for start in sorted(starts):
            for statement in table.create(start):
                await connection.execute(statement)
