"""Summarising messages again, if a user's instructions concern messages that a summary already covers.

The stored messages are read again from a position on. The cost is bounded and can be estimated beforehand. The text
before that position is kept.
"""

import math
from dataclasses import dataclass, replace

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import CompactionAction, CompactionDecision
from throughline.context.plan_context import ContextPlan
from throughline.context.policy import SummaryShape
from throughline.context.summaries.segment_ends import MERGED
from throughline.context.summaries.summary_prompt import TOOL_CHARACTERS
from throughline.domain.errors import InvalidInput
from throughline.domain.summary import Conversation, MeasuredMessages, ReadLimits
from throughline.ports.hooks import Decision
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.summariser import SummaryRejected
from throughline.turn.summary.summary_draft import Draft, open_draft
from throughline.turn.summary.write_segments import CallSize
from throughline.turn.summary.write_summary import Compaction, SummaryWriting, hook_event

MOST_CALLS = 32
"""Approximate maximum of model calls for one request; if more were needed, only the newest messages are read."""

MOST_READS = MOST_CALLS * (MERGED - 1) // MERGED
"""Number of the MOST_CALLS calls that read messages; merging four segments into one takes a third as many."""

ALL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A user's request for a summary: what it has to keep, and the message from which to read again.

    Without `from_position`, instructions apply from the first message on. Without instructions only new messages are
    read.
    """

    instructions: str = ""
    from_position: int | None = None

    @property
    def first(self) -> int | None:
        """The position of the first message to read; None for the first that is not summarised."""
        return self.from_position or (1 if self.instructions else None)


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """What a summary would read and cost, as far as it can be estimated.

    `calls` and tokens are estimates for the segments that are not stored yet. `seconds` is None if the session has no
    summary yet whose duration is known.
    """

    from_position: int
    through_position: int
    message_count: int
    calls: int
    input_tokens: int
    output_tokens: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Reread:
    """A compaction that reads messages again, its plan, and its cost."""

    task: Compaction
    plan: ContextPlan
    cost: SummaryCost


async def plan_reread(dependencies: SummaryDependencies, task: Compaction, plan: ContextPlan, first: int) -> Reread:
    """Return the compaction that reads from position `first` on, up to the end of `plan` or of the old summary.

    It begins after the last segment that ends before that position, including segments merged since. If about
    `MOST_CALLS` calls are not enough, it begins later. Raises SummaryConflict if the session's summary has changed
    meanwhile, and InvalidInput for instructions too long for every summary model.
    """
    session = task.conversation.session
    through = max(session.summary_through_position, plan.decision.through_position or 0)
    decided = replace(plan, decision=_write_now_decision(through))
    draft = await open_draft(
        dependencies.summaries, session, task.agent.counter.count, lease=None, extends_prepared=False
    )
    again = _restarted_after(
        task, await _draft_before(dependencies, task, draft, first), session.summary_through_position
    )
    size = await _call_size(dependencies, again, decided)
    found = await dependencies.messages.measure(session.id, _first_position(again), through, _limits(size, MOST_READS))
    if found.first_position > _first_position(again):
        later = await _draft_before(dependencies, task, draft, found.first_position)
        again = _restarted_after(task, later, session.summary_through_position)
        found = await dependencies.messages.measure(session.id, _first_position(again), through, _limits(size, ALL))
    seconds = await dependencies.summaries.usual_seconds(session.id)
    return Reread(again, decided, _cost(found, size, task.agent.factor, through, seconds))


async def _draft_before(dependencies: SummaryDependencies, task: Compaction, draft: Draft, position: int) -> Draft:
    """Return the draft of the messages before `position`; a merged segment across it is replaced by its parts."""
    before, session = draft.before(position), task.conversation.session
    is_rolling = task.agent.definition.context.summary.shape is SummaryShape.ROLLING
    if is_rolling and before.segments:
        return before
    chain = await dependencies.summaries.chain_of_segments(session.id, before.through_position + 1, position)
    return before.followed_by(chain[:1] if is_rolling else chain)


async def _call_size(dependencies: SummaryDependencies, task: Compaction, plan: ContextPlan) -> CallSize:
    writing = SummaryWriting(dependencies, task, plan, hook_event(task, plan), extends_prepared=False)
    try:
        return await (await writing.open_writer(Decision())).call_size()
    except SummaryRejected as error:
        raise InvalidInput(error.detail, field="instructions") from error


def _limits(size: CallSize, calls: int) -> ReadLimits:
    return ReadLimits(
        tokens=calls * size.read,
        messages=ALL if size.messages is None else min(calls * size.messages, ALL),
        largest_message=size.read,
        tool_characters=TOOL_CHARACTERS,
    )


def _cost(found: MeasuredMessages, size: CallSize, factor: float, through: int, seconds: float | None) -> SummaryCost:
    reads = math.ceil(max(found.tokens / max(size.read, 1), found.messages / (size.messages or ALL)))
    is_merged = size.unmerged is not None and reads * size.written > size.unmerged
    merges = reads // (MERGED - 1) if is_merged else 0
    calls = reads + merges
    return SummaryCost(
        from_position=found.first_position,
        through_position=through,
        message_count=found.messages,
        calls=calls,
        input_tokens=int((found.tokens + merges * MERGED * size.written + calls * size.beside) * factor),
        output_tokens=int(calls * size.written * factor),
        seconds=None if seconds is None else round(calls * seconds, 1),
    )


def _first_position(task: Compaction) -> int:
    return task.conversation.session.summary_through_position + 1


def _restarted_after(task: Compaction, draft: Draft, must_reach: int) -> Compaction:
    """Return the task for a conversation in which nothing after the draft is summarised."""
    session = replace(
        task.conversation.session,
        summary_through_position=draft.through_position,
        summary_through_id=draft.through_id,
    )
    conversation: Conversation = replace(task.conversation, session=session, prepared=None)
    return replace(task, conversation=conversation, beginning=draft, must_reach=must_reach)


def _write_now_decision(through: int) -> CompactionDecision:
    return CompactionDecision(CompactionAction.WRITE_NOW, CompactionTrigger.MANUAL, through, must_load_first=True)
