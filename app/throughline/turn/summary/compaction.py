"""The values of one compaction: what is to be summarised and within which limits, and the summary written so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.measure import Count
from throughline.context.plan_context import ContextPlan
from throughline.context.policy import SummaryKind, SummaryPolicy, SummaryShape
from throughline.context.summaries.find_facts import found_facts, named_facts, without_kept
from throughline.context.summaries.kept_facts import merge_kept_facts, without_subjects
from throughline.context.summaries.summary_layout import LEAST_NODE_TOKENS, MERGED, SummaryLayout
from throughline.context.summaries.summary_prompt import PROMPT_VERSION, TextRequest, read_hash, request_hash
from throughline.domain.basic_types import MessageId, RunId, UserId
from throughline.domain.errors import SummaryConflict
from throughline.domain.message import Message, NewMessage
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import (
    Adoption,
    CompactionOutcome,
    CompactionResult,
    Conversation,
    KeptFact,
    NewSegment,
    Segment,
    SummaryState,
    SummaryVersion,
)
from throughline.ports.hooks import PreCompact
from throughline.ports.storage import SummaryStore
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.summary.summariser import Summariser, summary_tokens
from throughline.turn.summary.summariser_calls import Written

CHANGED_MEANWHILE = "Another turn or request has changed the session's summary."


@dataclass(frozen=True, slots=True)
class Compaction:
    """A conversation to compact as `plan` says, and its limits. `lease` is None outside turns.

    `pending` is the user's message while it is not stored. `cap_tokens` is the most that the next prompt may take, by
    our count, after the provider refused one. `seconds_left` is the remaining time, None for the policy's
    time limit. If summarised messages are read again, the text begins with `beginning`, and is useful only if it
    reaches `must_reach`, the old cursor.
    """

    agent: ReadyAgent
    conversation: Conversation
    plan: ContextPlan
    pending: NewMessage | None = None
    cap_tokens: int | None = None
    lease: Lease | None = None
    instructions: str = ""
    seconds_left: float | None = None
    beginning: "Draft | None" = None
    must_reach: int = 0

    @property
    def session(self) -> Session:
        """The session as it is stored, with the summary in use."""
        return self.conversation.session

    @property
    def policy(self) -> SummaryPolicy:
        """How the agent's summaries are written."""
        return self.agent.definition.context.summary

    @property
    def count(self) -> Callable[[str], int]:
        """The agent's counter of tokens."""
        return self.agent.counter.count

    @property
    def layout(self) -> SummaryLayout:
        """The division of the largest summary that the agent may have."""
        return SummaryLayout(summary_tokens(self.agent), self.policy.kind, self.count)

    @property
    def is_rolling(self) -> bool:
        """Whether the summary is one text that is rewritten each time.

        It is so by the policy, or if the summary is too small for three readable segments.
        """
        is_too_small = self.layout.narrative_tokens < (MERGED - 1) * LEAST_NODE_TOKENS
        return is_too_small or self.policy.shape is SummaryShape.ROLLING

    @property
    def run_id(self) -> RunId | None:
        """The run that waits for the compaction; None outside turns."""
        return None if self.lease is None else self.lease.run_id

    @property
    def limit_seconds(self) -> float:
        """The seconds that this compaction may take."""
        return self.policy.timeout_seconds if self.seconds_left is None else self.seconds_left

    @property
    def is_in_turn(self) -> bool:
        """Whether a turn waits for the compaction, or it has a turn's time limit."""
        return self.lease is not None or self.seconds_left is None

    @property
    def is_reread(self) -> bool:
        """Whether messages that are already summarised are read again."""
        return self.beginning is not None

    @property
    def extends_prepared(self) -> bool:
        """Whether the new summary continues the prepared one instead of reading its messages again.

        A user's instructions require reading them again, because it was written without them.
        """
        prepared = self.conversation.prepared
        if prepared is None or self.instructions:
            return False
        return prepared.through_position < (self.plan.decision.through_position or 0)

    @property
    def hook_event(self) -> PreCompact:
        """The event for the agent's hook; `must_compact`: the prompt would not fit without a compaction."""
        prepared, decision, budget = self.conversation.prepared, self.plan.decision, self.agent.budget
        reached, through = self.session.summary_through_position, decision.through_position or 0
        if prepared is not None and decision.action is CompactionAction.ADOPT:
            through = prepared.through_position
        elif prepared is not None and self.extends_prepared:
            reached = prepared.through_position
        return PreCompact(
            trigger="manual" if decision.trigger is CompactionTrigger.MANUAL else "auto",
            agent=self.agent.definition.name,
            session_id=str(self.session.id),
            tokens=self.plan.tokens,
            target_tokens=budget.target_tokens,
            message_count=max(through - reached, 0),
            from_position=reached + 1,
            through_position=through,
            instructions=self.instructions,
            must_compact=self.plan.tokens > budget.budget_tokens,
        )

    def unchanged(self, outcome: CompactionOutcome, detail: str = "", *, is_stale: bool = False) -> CompactionResult:
        """Return the result of a compaction that left the session as it was."""
        tokens = self.plan.tokens
        return CompactionResult(outcome, self.session, detail, tokens, tokens, is_stale=is_stale)

    def overtaken(self) -> CompactionResult:
        """Return the result of a compaction that was dropped because something else changed the summary first.

        That is another turn, a side job, or a request on demand.
        """
        return self.unchanged(CompactionOutcome.SKIPPED, CHANGED_MEANWHILE, is_stale=True)


@dataclass(frozen=True, slots=True)
class Draft:
    """The summary of messages 1 to `through_position` so far.

    `segments` are stored segments without gaps, beginning at position 1. `model` wrote the newest segment.
    `replaced_tokens` is our count of the messages added since the session's adopted summary, as far as they are loaded.
    """

    segments: tuple[Segment, ...] = ()
    kept_facts: tuple[KeptFact, ...] = ()
    model: str = ""
    replaced_tokens: int = 0

    @property
    def through_position(self) -> int:
        """The position of the last message that the draft covers; 0 if it covers none."""
        return self.segments[-1].through_position if self.segments else 0

    @property
    def through_id(self) -> MessageId | None:
        """The id of that message."""
        return self.segments[-1].through_id if self.segments else None

    @property
    def text(self) -> str:
        """The narrative, oldest first, as a summary model reads it."""
        return "\n\n".join(segment.text for segment in self.segments)

    @property
    def characters(self) -> int:
        """The characters of all texts, facts included."""
        return len(self.text) + sum(len(fact.text) for fact in self.kept_facts)

    def before(self, position: int) -> "Draft":
        """Return the draft without the segments that cover messages from `position` on; all facts are kept."""
        kept = tuple(takewhile(lambda segment: segment.through_position < position, self.segments))
        return Draft(kept_facts=self.kept_facts).followed_by(kept)

    def followed_by(self, segments: tuple[Segment, ...]) -> "Draft":
        """Return the draft with the stored segments that follow it, whose facts it already has."""
        if not segments:
            return self
        return replace(self, segments=(*self.segments, *segments), model=segments[-1].model)

    def extended(self, segments: tuple[Segment, ...], facts: Sequence[KeptFact], replaced_tokens: int) -> "Draft":
        """Return the draft with `segments` instead of its present ones, and with `facts` merged into its own.

        The last segment must reach further than the draft. `replaced_tokens` is added to its count.
        """
        return Draft(
            segments=segments,
            kept_facts=merge_kept_facts(self.kept_facts, facts) if facts else self.kept_facts,
            model=segments[-1].model,
            replaced_tokens=self.replaced_tokens + replaced_tokens,
        )

    def adoption(self, compaction: Compaction) -> Adoption:
        """Return the version to adopt or prepare; the draft must reach beyond the session's summary."""
        session, facts = compaction.session, self.kept_facts
        text, tokens = self.rendered(session, compaction.layout, compaction.beginning)
        return Adoption(
            session_id=session.id,
            expected_version=session.summary_version,
            segment_ids=tuple(segment.id for segment in self.segments),
            text=text,
            token_count=tokens,
            kept_facts=facts if compaction.policy.kind is SummaryKind.HYBRID else without_subjects(facts),
            through_id=self.segments[-1].through_id,
            through_position=self.through_position,
            model=self.model,
            run_id=compaction.run_id,
            is_rewritten=compaction.is_reread,
            session_instructions=session.summary_instructions,
        )

    def adopted(self, compaction: Compaction) -> Session:
        """Return the session as it will be once this draft is adopted; unchanged if it covers no further message."""
        session = compaction.session
        if self.through_position <= session.summary_through_position:
            return session
        adoption = self.adoption(compaction)
        return replace(
            session,
            conversation_summary=adoption.text,
            summary_tokens=adoption.token_count,
            summary_through_id=adoption.through_id,
            summary_through_position=adoption.through_position,
        )

    def rendered(self, session: Session, layout: SummaryLayout, beginning: "Draft | None" = None) -> tuple[str, int]:
        """Return the text to adopt and its tokens, within the limit and, if possible, smaller than what it replaces.

        Facts without room in the text stay stored with the version.
        """
        added, before = self.replaced_tokens, session.summary_tokens
        if beginning is not None:  # the session's summary stands for the same messages
            added, before = (0, before) if beginning.segments else (added, 0)
        return layout.render(self.segments, self.kept_facts, added, before)


async def open_draft(summaries: SummaryStore, compaction: Compaction) -> Draft:
    """Return the draft with which the next summary begins: the adopted summary or the prepared one.

    The draft is empty if the session has no summary. Raises SummaryConflict if the session's summary, or the prepared
    one, has changed since the session was read.
    """
    session = compaction.session
    if compaction.extends_prepared:
        return await _draft_of_prepared(summaries, compaction.conversation)
    adopted = await summaries.load_parts(session.id, SummaryState.ADOPTED)
    if adopted is not None and adopted[0].version != session.summary_version:
        raise SummaryConflict("The session's summary has been changed.")
    if session.summary_through_position == 0 or session.summary_through_id is None:
        return Draft()
    if adopted is not None and _is_whole(*adopted):
        return _draft_of_version(*adopted)
    new = _segment_of_text(session, session.summary_through_id, compaction.count)
    segment = await summaries.save_segment(session.id, new, compaction.lease)
    return Draft(kept_facts=() if adopted is None else adopted[0].kept_facts).followed_by((segment,))


async def _draft_of_prepared(summaries: SummaryStore, conversation: Conversation) -> Draft:
    """Return the prepared summary, which stands for the messages up to its cursor as far as they are loaded."""
    prepared = await summaries.load_parts(conversation.session.id, SummaryState.PREPARED)
    if prepared is not None and _covers(prepared[1], prepared[0].through_position):
        through = prepared[0].through_position
        replaced = sum(message.token_count for message in conversation.history if message.position <= through)
        return replace(_draft_of_version(*prepared), replaced_tokens=max(replaced, prepared[0].token_count))
    raise SummaryConflict("The prepared summary has been adopted or replaced.")


def _draft_of_version(version: SummaryVersion, segments: tuple[Segment, ...]) -> Draft:
    return Draft(segments, version.kept_facts, version.model)


def _is_whole(version: SummaryVersion, segments: tuple[Segment, ...]) -> bool:
    """Return whether the version's segments together make up its text.

    In versions written before facts were kept, the last segment alone contains everything.
    """
    is_cumulative = len(segments) > 1 and bool(version.text) and segments[-1].text == version.text
    return _covers(segments, version.through_position) and not is_cumulative


def _covers(segments: Sequence[Segment], through_position: int) -> bool:
    """Return whether the segments reach from 1 to `through_position` without a gap or an overlap."""
    reach = 0
    for segment in segments:
        if segment.from_position != reach + 1:
            return False
        reach = segment.through_position
    return reach == through_position


def _segment_of_text(session: Session, through_id: MessageId, count: Count) -> NewSegment:
    """Return the session's summary text as one segment, so that others can follow it."""
    text = session.conversation_summary
    return NewSegment(
        from_position=1,
        through_position=session.summary_through_position,
        through_id=through_id,
        read_hash=read_hash(text, ()),
        redaction_count=session.redaction_count,
        text=text,
        token_count=count(text),
        prompt_version=PROMPT_VERSION,
    )


def request_key(
    owner_id: UserId, summariser: Summariser, asked: TextRequest, read: Sequence[Message] = (), level: int = 0
) -> str:
    """Return the hash by which the owner's other sessions find the answer to `asked`.

    It covers the owner, the model, the request and its limits, and the messages `read` as stored.
    """
    numbers = (asked.max_tokens, asked.keep_tokens, level)
    return request_hash(str(owner_id), summariser.key, asked.prompt, numbers, read)


def with_text(segment: NewSegment, written: Written) -> NewSegment:
    """Return the segment to store, with what was written for it."""
    return replace(
        segment,
        text=written.text,
        token_count=written.tokens,
        model=written.model,
        prompt_version=PROMPT_VERSION,
        duration_seconds=written.seconds,
        input_tokens=written.input_tokens,
        output_tokens=written.output_tokens,
    )


def with_facts(segment: NewSegment, lines: str, messages: Sequence[Message], count: Count) -> NewSegment:
    """Return the segment with the facts of the messages that the model named, and without their repetition in its text.

    Facts that rules find are left out of the text, too.
    """
    named = named_facts(segment.text, lines, messages)
    text = without_kept(segment.text, (*named, *found_facts(messages))) if messages else segment.text
    if text == segment.text:
        return replace(segment, kept_facts=named)
    return replace(segment, kept_facts=named, text=text, token_count=count(text))
