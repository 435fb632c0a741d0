"""What the REST API works on, from the parts of a process."""

from functools import partial

from app.api.services import Readiness, Services
from app.assembly.runtime import Runtime
from app.context.explain import ContextReport
from app.domain.ids import MessageId, SessionId, UserId
from app.domain.json_types import JsonObject
from app.domain.message import Content, Message, NewMessage
from app.turn.compact_result import CompactionResult
from app.turn.context_report import report_context
from app.turn.pins import pin_message, unpin_message
from app.turn.preview import preview_context
from app.turn.prompting import count_new
from app.turn.state import TurnParts
from app.turn.submit import submit_message
from app.turn.summarize_now import summarize_now


def make_services(runtime: Runtime, *, has_worker: bool) -> Services:
    """Return what the API's routes call; `has_worker`: turns run in this very process."""
    database, parts = runtime.database, runtime.turn_parts
    slots = runtime.worker if has_worker else None

    async def report(owner_id: UserId, session_id: SessionId) -> ContextReport:
        return await report_context(parts, await database.sessions.get(owner_id, session_id))

    async def summarize(owner_id: UserId, session_id: SessionId, instructions: str) -> CompactionResult:
        async with runtime.worker.occupied(owner_id):
            return await summarize_now(parts, await database.sessions.get(owner_id, session_id), instructions)

    async def preview(owner_id: UserId, session_id: SessionId, content: Content | None) -> JsonObject:
        return await preview_context(parts, await database.sessions.get(owner_id, session_id), content or "")

    async def pin(owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        return await pin_message(parts, database.pins, await database.sessions.get(owner_id, session_id), message_id)

    async def unpin(owner_id: UserId, session_id: SessionId, message_id: MessageId) -> tuple[Message, ...]:
        return await unpin_message(database.pins, await database.sessions.get(owner_id, session_id), message_id)

    async def check_ready() -> Readiness:
        await database.check_ready()
        checks = {"database": True, "listener": database.hub.is_listening}
        if has_worker:
            checks |= {"worker": runtime.worker.is_claiming, "jobs": runtime.worker.is_taking_jobs}
        return Readiness(checks)

    return Services(
        database=database,
        memories=runtime.memories.keeper,
        agents=runtime.agents,
        submit=lambda submission: submit_message(submission, database.runs, slots),
        report_context=report,
        preview_context=preview,
        pin_message=pin,
        unpin_message=unpin,
        summarize_now=summarize,
        render_metrics=runtime.metrics.render,
        check_ready=check_ready,
        count_message=partial(_count_message, parts),
        clock=parts.clock,
    )


async def _count_message(parts: TurnParts, agent: str, message: NewMessage) -> NewMessage:
    return await count_new(message, parts.make_counter(parts.agents.get(agent).context.token_counter))
