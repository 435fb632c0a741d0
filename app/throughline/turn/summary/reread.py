"""Summarising messages again, if a user's instructions concern messages that a summary already covers.

The stored messages are read again from a position on. The cost is bounded and can be estimated beforehand. The text
before that position is kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import CompactionAction, CompactionDecision
from throughline.context.policy import SummaryShape
from throughline.context.summaries.check_summary import SummaryRejected
from throughline.context.summaries.facts_choice_prompt import choice_of
from throughline.context.summaries.summary_layout import MERGED
from throughline.context.summaries.summary_prompt import TOOL_CHARACTERS
from throughline.domain.errors import InvalidInput
from throughline.domain.summary import KeptFact, MeasuredMessages, ReadLimits
from throughline.execution.compute_threads import run_off_loop_if_large
from throughline.turn.summary.compaction import Compaction, Draft, open_draft
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.summariser import Summariser
from throughline.turn.summary.write_summary import begin_summary

MOST_CALLS = 32
"""Approximate maximum of model calls for one request; if more were needed, only the newest messages are read."""

MOST_READS = MOST_CALLS * (MERGED - 1) // MERGED
"""Number of the MOST_CALLS calls that read messages; merging four segments into one takes a third as many."""

ALL = 2**31 - 1

MANY_FACTS = 50
"""Number of facts from which a choice among them is measured in a thread."""


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

    `calls` and tokens are estimates for the segments that are not stored yet and for the choice among facts. `seconds`
    is None if the session has no summary yet whose duration is known.
    """

    from_position: int
    through_position: int
    message_count: int
    calls: int
    input_tokens: int
    output_tokens: int
    seconds: float | None


class CallSize(NamedTuple):
    """The tokens of one call for a segment: messages read, the rest of the request, and at most the answer.

    `messages` is the most messages that it reads, None for as many as fit. Segments whose texts take more than
    `unmerged` tokens are merged; None if they never are. `choice` has the tokens of request and answer of a further
    call, which chooses among facts; None if none is due.
    """

    read: int
    beside: int
    written: int
    messages: int | None
    unmerged: int | None
    choice: tuple[int, int] | None


async def plan_reread(
    dependencies: SummaryDependencies, compaction: Compaction, first: int
) -> tuple[Compaction, SummaryCost]:
    """Return the compaction that reads from position `first` on, and its cost.

    It ends with the plan or the old summary, whichever reaches further. It begins after the last segment that ends
    before `first`, including segments merged since. If about `MOST_CALLS` calls are not enough, it begins later. Raises
    SummaryConflict if the session's summary has changed meanwhile, and InvalidInput for instructions too long for every
    summary model.
    """
    session, plan = compaction.session, compaction.plan
    through = max(session.summary_through_position, plan.decision.through_position or 0)
    task = replace(
        compaction,
        conversation=replace(compaction.conversation, prepared=None),
        plan=replace(plan, decision=_write_now_decision(through)),
    )
    draft = await open_draft(dependencies.summaries, task)
    again = _restarted_after(task, await _draft_before(dependencies, task, draft, first))
    size = await _call_size(dependencies, again, draft.kept_facts)
    found = await dependencies.messages.measure(session.id, _first_position(again), through, _limits(size, MOST_READS))
    if found.first_position > _first_position(again):
        again = _restarted_after(task, await _draft_before(dependencies, task, draft, found.first_position))
        found = await dependencies.messages.measure(session.id, _first_position(again), through, _limits(size, ALL))
    seconds = await dependencies.summaries.usual_seconds(session.id)
    return again, _cost(found, size, task.agent.factor, through, seconds)


async def _draft_before(dependencies: SummaryDependencies, task: Compaction, draft: Draft, position: int) -> Draft:
    """Return the draft of the messages before `position`; a merged segment across it is replaced by its parts."""
    before, is_rolling = draft.before(position), task.policy.shape is SummaryShape.ROLLING
    if is_rolling and before.segments:
        return before
    chain = await dependencies.summaries.chain_of_segments(task.session.id, before.through_position + 1, position)
    return before.followed_by(chain[:1] if is_rolling else chain)


async def _call_size(dependencies: SummaryDependencies, task: Compaction, facts: Sequence[KeptFact]) -> CallSize:
    """Return the size of one call for a segment, by our count; `facts` are those kept so far."""
    writer = begin_summary(dependencies, task, task.hook_event)
    try:
        await writer.open()
    except SummaryRejected as error:
        raise InvalidInput(error.detail, field="instructions") from error
    first, most = writer.summarisers[0], await writer.max_tokens(writer.summarisers[0])
    return CallSize(
        read=await writer.room_tokens(),
        beside=first.prompt_tokens(writer.request((), first, most)),
        written=most + first.keep_tokens,
        messages=first.policy.chunk_messages,
        unmerged=None if task.is_rolling else task.layout.narrative_tokens,
        choice=await run_off_loop_if_large(len(facts), partial(_choice_size, task, facts, first), large=MANY_FACTS),
    )


def _choice_size(task: Compaction, facts: Sequence[KeptFact], summariser: Summariser) -> tuple[int, int] | None:
    """Return the tokens of the call that chooses among the facts of a reread, None if none is due."""
    found = [replace(fact, is_unjudged=True) for fact in facts if not fact.is_only_stated]
    choice = choice_of(found, task.layout.fact_tokens(facts), summariser.count)
    return (summariser.prompt_tokens(choice.request), choice.answer_tokens) if choice.listed else None


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
    texts = reads + merges
    calls = texts + (size.choice is not None)
    choice_input, choice_output = size.choice or (0, 0)
    return SummaryCost(
        from_position=found.first_position,
        through_position=through,
        message_count=found.messages,
        calls=calls,
        input_tokens=int((found.tokens + merges * MERGED * size.written + texts * size.beside + choice_input) * factor),
        output_tokens=int((texts * size.written + choice_output) * factor),
        seconds=None if seconds is None else round(calls * seconds, 1),
    )


def _first_position(task: Compaction) -> int:
    return task.session.summary_through_position + 1


def _restarted_after(task: Compaction, draft: Draft) -> Compaction:
    """Return the task for a conversation in which nothing after the draft is summarised."""
    must_reach, draft_ends = task.session.summary_through_position, draft.through_position
    session = replace(task.session, summary_through_position=draft_ends, summary_through_id=draft.through_id)
    conversation = replace(task.conversation, session=session)
    return replace(task, conversation=conversation, beginning=draft, must_reach=must_reach)


def _write_now_decision(through: int) -> CompactionDecision:
    return CompactionDecision(CompactionAction.WRITE_NOW, CompactionTrigger.MANUAL, through, must_load_first=True)
