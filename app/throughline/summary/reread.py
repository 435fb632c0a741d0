"""Summarising again what is summarised: where a wish is to reach messages that a summary stands for already.

The originals are read again from a position on, in bounded cost, which can be asked for before. What stands before that
position keeps its text.
"""

import math
from dataclasses import dataclass, replace

from throughline.context.compaction_triggers import CompactionTrigger
from throughline.context.decide_compaction import CompactionAction, CompactionDecision
from throughline.context.plan_context import ContextPlan
from throughline.context.policy import SummaryShape
from throughline.context.summaries.merge_tiers import MERGED
from throughline.context.summaries.summary_prompt import TOOL_CHARACTERS
from throughline.domain.conversation import Conversation
from throughline.domain.errors import InvalidInput
from throughline.domain.summary import MeasuredMessages, ReadLimits
from throughline.ports.hooks import Decision
from throughline.summary.dependencies import SummaryDependencies
from throughline.summary.summariser import SummaryRejected
from throughline.summary.summary_draft import Draft, open_draft
from throughline.summary.write_segments import CallSize
from throughline.summary.write_summary import Compaction, SummaryWriting, hook_event

MOST_CALLS = 32
"""About so many texts are asked for in one request; where more would be needed, the newest messages are read."""

MOST_READS = MOST_CALLS * (MERGED - 1) // MERGED
"""So many of them are made of messages: merging four into one, level by level, takes a third of their number."""

ALL = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user wants of a summary: what it has to keep, and from which message on it is to be read again.

    Without `from_position` a wish reaches back to the first message, and a summary without one reads only what is new.
    """

    instructions: str = ""
    from_position: int | None = None

    @property
    def first(self) -> int | None:
        """The first message to be read, None for the first that is not summarised."""
        return self.from_position or (1 if self.instructions else None)


@dataclass(frozen=True, slots=True)
class SummaryCost:
    """What a summary would read and cost, as far as it can be told before.

    `calls` and tokens are estimates of what is not stored yet. `seconds` is None where the session has no summary whose
    time could be taken.
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
    """A compaction that reads messages again, its plan, and what it costs."""

    task: Compaction
    plan: ContextPlan
    cost: SummaryCost


async def plan_reread(dependencies: SummaryDependencies, task: Compaction, plan: ContextPlan, first: int) -> Reread:
    """Return the compaction that reads from the position `first` on, up to where `plan` or the old summary reaches.

    It begins behind the last segment that ends before that position, also one that was merged since; where about
    `MOST_CALLS` calls are not enough, at a later one. Raises SummaryConflict where the session's summary has changed
    meanwhile, InvalidInput for a wish that no summary model has room for.
    """
    session = task.conversation.session
    through = max(session.summary_through_position, plan.decision.through_position or 0)
    decided = replace(plan, decision=_decision(through))
    draft = await open_draft(
        dependencies.summaries, session, task.agent.counter.count, lease=None, extends_prepared=False
    )
    again = _begins_with(task, await _draft_before(dependencies, task, draft, first), session.summary_through_position)
    size = await _call_size(dependencies, again, decided)
    found = await dependencies.messages.measure(session.id, _begin(again), through, _limits(size, MOST_READS))
    if found.first_position > _begin(again):
        later = await _draft_before(dependencies, task, draft, found.first_position)
        again = _begins_with(task, later, session.summary_through_position)
        found = await dependencies.messages.measure(session.id, _begin(again), through, _limits(size, ALL))
    seconds = await dependencies.summaries.usual_seconds(session.id)
    return Reread(again, decided, _cost(found, size, task.agent.factor, through, seconds))


async def _draft_before(dependencies: SummaryDependencies, task: Compaction, draft: Draft, position: int) -> Draft:
    """Return what stands for messages before the position: parts of what was merged over it, where it lies in that."""
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


def _begin(task: Compaction) -> int:
    return task.conversation.session.summary_through_position + 1


def _begins_with(task: Compaction, draft: Draft, must_reach: int) -> Compaction:
    """Return the task for a conversation of which nothing is summarised behind the draft."""
    session = replace(
        task.conversation.session,
        summary_through_position=draft.through_position,
        summary_through_id=draft.through_id,
    )
    conversation: Conversation = replace(task.conversation, session=session, prepared=None)
    return replace(task, conversation=conversation, beginning=draft, must_reach=must_reach)


def _decision(through: int) -> CompactionDecision:
    return CompactionDecision(CompactionAction.WRITE_NOW, CompactionTrigger.MANUAL, through, must_load_first=True)
