"""Redaction of a message: a marker replaces its text, and all data derived from the text is deleted.

Of its metadata stays only what the call of a tool's result has waited for, because it divides a run into parts.

Derived data are segments and versions of the summary, the search index, the embedding and all later reasoning (both by
triggers). They are also the run's input and events, the title, and what providers said about failed calls of the
session. Copies of the message in other sessions are redacted too, and results of recall tools that quoted one of these
messages, directly or through another result. A copy that a user made is left, and named.

The summary returns to the newest version that does not cover the message. Messages after that version's cursor are
summarised again. A pin stays: it keeps a group of messages together, and keeps the marker in the prompt.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from throughline.db.connection.pool import Row
from throughline.db.connection.transactions import Statements
from throughline.db.sessions.copies import find_copies, find_copies_of_session, kept_copies
from throughline.db.sessions.quotations import MARKER as MARKER  # noqa: PLC0414  # part of what this module offers
from throughline.db.sessions.quotations import find_quoting, find_quoting_session, hold_history
from throughline.db.statements.locks import lock_session
from throughline.db.statements.rows import MESSAGE_COLUMNS, MESSAGE_TEXT, PINNED, message_from, to_json
from throughline.db.statements.sql import new_id, sql
from throughline.db.summaries.adopt import discard_prepared, supersede
from throughline.domain.basic_types import MessageId, SessionId, UserId
from throughline.domain.errors import NotFound, SessionBusy
from throughline.domain.message import Message, MessageCopy
from throughline.domain.session import Session

_GET = sql(
    "select {columns}, {pinned} from messages m where m.id = :id and m.session_id = :session_id",
    columns=MESSAGE_COLUMNS,
    pinned=PINNED,
)
_OPEN_RUN = """
    select r.id from runs r where r.session_id = :session_id and r.owner_id = :owner_id
        and r.status in ('queued', 'running', 'waiting')
    order by r.seq limit 1
"""
_BUSY, _BUSY_NOW = sql(f"{_OPEN_RUN} for update"), sql(_OPEN_RUN)
_UNREDACTED = sql("""
    select m.id, m.session_id, m.position, m.run_id, m.role, m.token_count from messages m
    where m.id = any(:ids) and m.session_id = :session_id
        and not exists (select 1 from message_redactions d where d.message_id = m.id)
""")
_ALLOW = sql("select set_config('throughline.redaction', 'on', true)")
_FORBID = sql("select set_config('throughline.redaction', '', true)")
_UNTITLE = sql(
    """
    update sessions s set title = ''
    where s.id = :session_id and s.title <> '' and exists (
        select 1 from messages m where m.id = any(:ids) and position(rtrim(s.title, '…') in {text}) > 0)
""",
    text=MESSAGE_TEXT,
)
"""Statement that removes a title made from one of the messages."""

_OVERWRITE = sql("""
    update messages m set content = :marker, content_blocks = null, token_count = 0, counter = '',
        metadata = jsonb_strip_nulls(jsonb_build_object('redacted', true, 'outside', case
            when m.role = 'tool' and m.metadata ->> 'outside' in ('tool_result', 'approval', 'answer', 'expired')
                then m.metadata -> 'outside' end, 'waits', case
            when m.role = 'tool' and jsonb_typeof(m.metadata -> 'waits') = 'number' then m.metadata -> 'waits' end)),
        tool_calls = (
            select coalesce(jsonb_agg(jsonb_build_object(
                'id', c.call ->> 'id', 'name', c.call ->> 'name', 'arguments', '{}') order by c.place), '[]')
            from jsonb_array_elements(m.tool_calls) with ordinality as c (call, place))
    where m.id = any(:ids)
""")
_RECORD = sql("""
    insert into message_redactions (message_id, session_id, position, actor)
    select m.id, m.session_id, m.position, :actor from messages m where m.id = any(:ids)
    on conflict (message_id) do nothing
""")
_CLEAN = (
    # The run's row is locked before its events are deleted, because retention may delete them concurrently.
    sql("""
        with held as materialized (
            select r.id from runs r where r.id = any(:runs) or r.id = any(array(
                select m.run_id from messages m
                where m.session_id = :session_id and m.position >= :first and m.role = 'user' and exists (
                    select 1 from run_events e where e.run_id = m.run_id and e.type = 'reasoning.delta')))
            for no key update
        )
        delete from run_events e using held where e.run_id = held.id
    """),
    sql("""
        update runs set input = cast(:input as json) where id in (
            select m.run_id from messages m where m.id = any(:ids) and m.role = 'user')
    """),
    sql("update runs set provider_message = null where session_id = :session_id and provider_message is not null"),
    sql("""
        delete from search_terms t using search_blocks b where b.session_id = :session_id
            and b.through_position >= :first and t.session_id = b.session_id and t.from_position = b.from_position
    """),
    sql("delete from search_blocks where session_id = :session_id and through_position >= :first"),
    sql("delete from summary_versions where session_id = :session_id and through_position >= :first"),
    sql("delete from graph_states where session_id = :session_id"),
    sql("""
        delete from summaries t where t.session_id = :session_id and exists (
            select 1 from unnest(cast(:positions as integer[])) as p (position)
            where p.position between t.from_position and t.through_position)
    """),
)
"""Statements that delete derived data.

Versions that reach the message may contain its words anywhere, segments only if they cover its position. A prompt of
any later turn may have shown the message: a provider, or the reasoning that events show, may have repeated words of it.
"""

_KEPT = sql("""
    select v.id from summary_versions v join sessions s on s.id = v.session_id
    where v.session_id = :session_id and v.version is not null and s.summary_through_position > 0
    order by v.state = 'adopted' desc, v.through_position desc, v.version desc limit 1
""")
_COPY = sql("""
    insert into summary_versions (id, session_id, version, base_version, state, segment_ids, text, kept_facts,
        token_count, through_id, through_position, model, run_id)
    select :version_id, v.session_id, cast(:base_version as integer) + 1, :base_version, 'adopted', v.segment_ids,
        v.text, v.kept_facts, v.token_count, v.through_id, v.through_position, v.model, v.run_id
    from summary_versions v where v.id = :kept_id
""")
_MOVE = sql("""
    update sessions s set conversation_summary = coalesce(v.text, ''), summary_through_id = v.through_id,
        summary_through_position = coalesce(v.through_position, 0), summary_tokens = coalesce(v.token_count, 0),
        summary_version = s.summary_version + 1, view_state = '{}', redaction_count = s.redaction_count + 1,
        message_tokens = s.message_tokens - :tokens
    from (select 1) one left join summary_versions v on v.id = :version_id
    where s.id = :session_id
""")


@dataclass(frozen=True, slots=True)
class Redaction:
    """The message to redact, its session and owner, and the name of the key that acts on the owner's behalf, if any."""

    owner_id: UserId
    session_id: SessionId
    message_id: MessageId
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Redacted:
    """A redacted message, the copies of it that a user made and that keep the text, and the sessions that changed."""

    message: Message
    kept_copies: tuple[MessageCopy, ...]
    session_ids: frozenset[SessionId]


async def redact_message(tx: Statements, wanted: Redaction) -> Redacted:
    """Redact the message, its copies and all quotations of them. Raises NotFound, SessionBusy.

    A session with a queued or running turn raises SessionBusy, because the turn holds the text and would store it
    again. A message that is already redacted is returned unchanged.
    """
    await hold_history(tx, wanted.owner_id)
    session = await lock_idle_session(tx, wanted.session_id, wanted.owner_id)
    changed = await redact_messages(tx, session, (wanted.message_id,), wanted.actor)
    rows = await tx.fetch(_GET, id=wanted.message_id, session_id=wanted.session_id)
    if not rows:
        raise NotFound(f"There is no message {wanted.message_id} in session {wanted.session_id}.")
    message = message_from(rows[0])
    return Redacted(message, await kept_copies(tx, session.id, message.position), changed)


async def redact_messages(
    tx: Statements, session: Session, ids: Sequence[MessageId], actor: str | None
) -> frozenset[SessionId]:
    """Redact messages of the session, their copies and all quotations of them; return the sessions that changed.

    Other ids, and messages that are already redacted, are passed over. The caller has called `hold_history` for the
    session's owner, then `lock_idle_session`, which returned the session. Raises SessionBusy.
    """
    rows = await tx.fetch(_UNREDACTED, ids=list(ids), session_id=session.id)
    if not rows:
        return frozenset()
    taking = _Redactor(tx, session.owner_id, {session.id: session}, actor)
    await taking.take(rows)
    return frozenset(taking.sessions)


async def redact_traces(
    tx: Statements, owner_id: UserId, session_id: SessionId, *, with_copies: bool
) -> frozenset[SessionId]:
    """Redact what the user's other sessions quote from a session about to be erased; return the sessions that changed.

    With `with_copies`, redact copies of its messages too, except those that a user made. Raises SessionBusy if one of
    these sessions has an unfinished turn.
    """
    rows = list(await find_quoting_session(tx, owner_id, session_id))
    if with_copies:
        known = {row["id"] for row in rows}
        rows += [row for row in await find_copies_of_session(tx, session_id) if row["id"] not in known]
    taking = _Redactor(tx, owner_id, {})
    await taking.take(rows, without=session_id, with_copies=with_copies)
    return frozenset(taking.sessions)


@dataclass(frozen=True, slots=True)
class _Redactor:
    """The redaction of messages, their copies and everything that quotes them, asked for by `actor`.

    `sessions` are the sessions locked so far.
    """

    tx: Statements
    owner_id: UserId
    sessions: dict[SessionId, Session]
    actor: str | None = None

    async def take(
        self,
        rows: Sequence[Row],
        *,
        without: SessionId | None = None,
        with_copies: bool = True,
    ) -> None:
        """Redact the messages, and transitively their copies and all quotations, except in the session `without`.

        Each session is locked before its messages' quotations are searched, so that none can be added meanwhile.
        """
        of_session: dict[SessionId, list[Row]] = defaultdict(list)
        known: list[Row] = []
        while rows:
            known.extend(rows)
            for row in rows:
                of_session[SessionId(row["session_id"])].append(row)
            for session_id in sorted(of_session.keys() - self.sessions.keys()):
                self.sessions[session_id] = await lock_idle_session(self.tx, session_id, self.owner_id)
            found = {row["id"]: row for row in await find_quoting(self.tx, self.owner_id, known)}
            if with_copies:
                found |= {row["id"]: row for row in await find_copies(self.tx, known)}
            rows = [row for row in found.values() if row["session_id"] != without]
        for session_id, of_one in sorted(of_session.items()):
            await _redact(self.tx, self.sessions[session_id], of_one, self.actor)


async def lock_idle_session(tx: Statements, session_id: SessionId, owner_id: UserId) -> Session:
    """Lock the session's unfinished runs, then the session, and return it.

    Raises NotFound. Raises SessionBusy if there are such runs, also runs submitted meanwhile.
    """
    busy = await tx.fetch(_BUSY, session_id=session_id, owner_id=owner_id)
    session = await lock_session(tx, session_id, owner_id)
    busy = busy or await tx.fetch(_BUSY_NOW, session_id=session_id, owner_id=owner_id)
    if busy:
        raise SessionBusy(
            f"The turn {busy[0]['id']} of session {session_id} is not finished. Wait for it or cancel it, then try "
            "again.",
            run_id=str(busy[0]["id"]),
        )
    return session


async def _redact(tx: Statements, session: Session, rows: Sequence[Row], actor: str | None) -> None:
    positions, ids = [row["position"] for row in rows], [row["id"] for row in rows]
    await tx.fetch(_UNTITLE, session_id=session.id, ids=ids)
    await tx.fetch(_ALLOW)
    await tx.fetch(_OVERWRITE, ids=ids, marker=MARKER)
    await tx.fetch(_FORBID)
    await tx.fetch(_RECORD, ids=ids, actor=actor)
    parameters = {
        "ids": ids,
        "runs": [row["run_id"] for row in rows if row["run_id"] is not None],
        "input": to_json({"content": MARKER, "metadata": {}}),
        "session_id": session.id,
        "first": min(positions),
        "positions": positions,
    }
    for statement in _CLEAN:
        await tx.fetch(statement, **parameters)
    await _readopt_earlier_summary(tx, session, sum(row["token_count"] for row in rows))


async def _readopt_earlier_summary(tx: Statements, session: Session, tokens: int) -> None:
    """Adopt the newest remaining summary version again, as a new version; without any, the session has no summary.

    `tokens` is what the redacted messages no longer count.
    """
    version_id = new_id()
    await discard_prepared(tx, session.id)
    kept = await tx.fetch(_KEPT, session_id=session.id)
    if kept:
        await supersede(tx, session.id)
        base = {"base_version": session.summary_version, "kept_id": kept[0]["id"]}
        await tx.fetch(_COPY, version_id=version_id, **base)
    await tx.fetch(_MOVE, session_id=session.id, version_id=version_id, tokens=tokens)
