"""Appending a message: fence check, position and row in one statement."""

from collections.abc import Sequence

from throughline.db.connection.transactions import Statements
from throughline.db.statements.model_calls import INSERT_CALLS, call_parameters
from throughline.db.statements.new_ids import new_id
from throughline.db.statements.reasoning_rows import INSERT_REASONING, INSERT_RETURNED, reasoning_parameters
from throughline.db.statements.rows import MESSAGE_COLUMNS, lease_lost, message_from, message_parameters
from throughline.db.statements.sql import sql
from throughline.domain.message import Message, NewMessage
from throughline.domain.run import Lease
from throughline.domain.usage_report import ModelCall

INSERT_COLUMNS = """
    id, session_id, position, run_id, step, role, content, content_blocks, source, tool_calls, tool_call_id, name,
    author, token_count, counter, metadata"""

INSERT_VALUES = """
    :message_id, seat.id, seat.message_count, :run_id, :step, :role, :content, cast(:content_blocks as json), :source,
    cast(:tool_calls as jsonb), :tool_call_id, :name, :author, :token_count, :counter, cast(:metadata as jsonb)"""

_APPEND = sql(
    """
    with held as (
        select r.session_id, r.owner_id, r.id as run_id, r.agent from runs r
        where r.id = :run_id and r.fence = :fence and r.status = 'running' for share
    ), earlier as (
        select {message_columns} from messages m cross join held where m.run_id = :run_id and m.step = :step
    ), seat as (
        update sessions s set message_count = s.message_count + 1, message_tokens = s.message_tokens + :token_count
        from held where s.id = held.session_id and not exists (select 1 from earlier)
        returning s.id, s.message_count
    ), written as (
        insert into messages as m ({insert_columns}) select {insert_values} from seat returning {message_columns}
    ), reasoned as ({insert_reasoning}), returned as ({insert_returned}), paid as ({insert_calls})
    select * from written union all select * from earlier
""",
    message_columns=MESSAGE_COLUMNS,
    insert_columns=INSERT_COLUMNS,
    insert_values=INSERT_VALUES,
    insert_reasoning=INSERT_REASONING.format(message_id="written.id", source="written"),
    insert_returned=INSERT_RETURNED.format(run_id="written.run_id", message_id="written.id", source="written"),
    insert_calls=INSERT_CALLS.format(
        payer="held.owner_id, held.session_id, held.run_id, held.agent", source="seat join held on true"
    ),
)


async def append_message(
    tx: Statements, lease: Lease, step: str, message: NewMessage, calls: Sequence[ModelCall] = ()
) -> Message:
    """Append the message under the run's lease, or return the one already stored for (run, step). Raises LeaseLost.

    `step` names the message within its run, so that a repeated attempt stores it only once. `calls` are the model calls
    that the message cost; they and its reasoning are stored with it.

    The position is assigned under the session's row lock and rolls back with the row, so there are no gaps. Two
    concurrent attempts at one step cause a unique violation for the later one, which then finds the row. Each commit
    waits for the disk. That holds for the user's message too, although the run has it: a turn that continues after a
    server crash needs the message.
    """
    rows = await tx.fetch(
        _APPEND,
        message_id=message.id or new_id(),
        run_id=lease.run_id,
        fence=lease.fence,
        step=step,
        **call_parameters(calls),
        **message_parameters(message),
        **reasoning_parameters(message),
    )
    if not rows:
        raise lease_lost(lease)
    return message_from(rows[0])
