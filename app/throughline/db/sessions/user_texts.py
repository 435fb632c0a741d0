"""The texts that the user has said in a session: messages, also those that wait for their turn, and answers."""

from dataclasses import dataclass

from throughline.db.connection.transactions import Statements
from throughline.db.statements.rows import NO_MESSAGE_IDS, RUN_COLUMNS, run_from
from throughline.db.statements.sql import sql
from throughline.domain.ids import RunId, SessionId
from throughline.domain.message import REDACTED_TEXT, text_of
from throughline.domain.run import Run
from throughline.domain.waiting import OUTSIDE, WaitKind

_UNSTORED = sql(
    """
    select {run_columns}, {no_message_ids} from runs r
    where r.session_id = :session_id and (r.status in ('queued', 'running', 'waiting') or r.is_skipped)
    order by r.seq desc limit :limit
""",
    run_columns=RUN_COLUMNS,
    no_message_ids=NO_MESSAGE_IDS,
)
_STORED = sql("""
    select m.run_id, m.role, m.tool_call_id, coalesce(m.content, (
            select string_agg(b.block ->> 'text', E'\\n' order by b.place)
            from jsonb_array_elements(cast(m.content_blocks as jsonb)) with ordinality as b (block, place)
            where b.block ->> 'type' = 'text'), '') as text
    from messages m
    where m.session_id = :session_id and (m.role = 'user' or (m.role = 'tool' and m.metadata ->> :outside = :answer))
    order by m.position desc limit :limit
""")


@dataclass(frozen=True, slots=True)
class UserText:
    """One text of the user, None if it is redacted, and its run, None for a message that belongs to no turn.

    `call_id` is set for the answer to a question of the model.
    """

    text: str | None
    run_id: RunId | None
    call_id: str | None = None


async def user_texts(tx: Statements, session_id: SessionId, limit: int) -> tuple[UserText, ...]:
    """Return up to `limit` newest texts of the user in the session, oldest first.

    Answers to several questions of one step that have the same text count once.
    """
    # Runs come first: a message that is stored in between is found twice, and counted once.
    runs = [run_from(row) for row in await tx.fetch(_UNSTORED, session_id=session_id, limit=limit)]
    rows = await tx.fetch(
        _STORED, session_id=session_id, outside=OUTSIDE, answer=WaitKind.ANSWER.value, limit=2 * limit
    )
    found = [
        UserText(
            None if row["text"] == REDACTED_TEXT else row["text"],
            None if row["run_id"] is None else RunId(row["run_id"]),
            row["tool_call_id"],
        )
        for row in reversed(rows)
    ]
    known = {(said.run_id, said.call_id) for said in found}
    found += [said for run in reversed(runs) for said in _of_run(run) if (said.run_id, said.call_id) not in known]
    return tuple(_without_repeated_answers(found))[-limit:]


def _of_run(run: Run) -> list[UserText]:
    """Return the message of an unfinished run, and the answers that it was given in its last wait."""
    said = [UserText(text_of(run.input.content), run.id)]
    if run.wait is not None:
        asked = {awaited.id for awaited in run.wait.calls if awaited.kind is WaitKind.ANSWER}
        said += [
            UserText(given.text, run.id, given.call_id) for given in run.wait.resolutions if given.call_id in asked
        ]
    return said


def _without_repeated_answers(found: list[UserText]) -> list[UserText]:
    kept: list[UserText] = []
    for said in found:
        is_repeated = kept and said.call_id is not None and (kept[-1].run_id, kept[-1].text) == (said.run_id, said.text)
        if not (is_repeated and kept[-1].call_id is not None):
            kept.append(said)
    return kept
