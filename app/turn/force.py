"""A summary on demand: what `POST …/summarize` and `/summarize` do. It runs outside any turn, by compare-and-set."""

from app.context.plan import plan_context
from app.context.triggers import Cause
from app.domain.session import Session
from app.turn.compact import Compaction, compact
from app.turn.compact_result import CompactionResult
from app.turn.context_report import at_rest
from app.turn.prompting import context_input
from app.turn.state import TurnParts


async def summarize_now(parts: TurnParts, session: Session, instructions: str) -> CompactionResult:
    """Summarise all but the newest messages of `session`, whatever the triggers say.

    A turn that runs meanwhile is not disturbed: whoever changes the summary first wins, the other's work is dropped.
    Raises NotFound, DatabaseUnavailable.
    """
    cast, conversation = await at_rest(parts, session)
    plan = plan_context(context_input(cast, conversation, None), forced=Cause.MANUAL)
    if plan.cause is None:
        detail = "There is nothing to summarize yet: the newest messages always stay as they are."
        return CompactionResult("skipped", detail, plan.tokens, plan.tokens, conversation.session)
    done = await compact(parts, Compaction(cast=cast, conversation=conversation, instructions=instructions), plan)
    after = done.conversation.session
    if done.outcome == "adopted":
        parts.metrics.compaction_measured(tokens_before=done.tokens_before, tokens_after=done.tokens_after)
    if done.is_stale:
        after = (await at_rest(parts, session))[1].session
    return CompactionResult(done.outcome, done.detail, done.tokens_before, done.tokens_after, after)
