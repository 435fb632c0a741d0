"""Draft of a summary: the segments and kept facts it consists of so far, and how to render and adopt it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from throughline.context.measure import Count
from throughline.context.policy import SummaryKind, SummaryPolicy
from throughline.context.summaries.check_summary import SMALL_SUMMARY_TOKENS
from throughline.context.summaries.kept_facts import merge_kept_facts, without_subjects
from throughline.context.summaries.segment_ends import RenderedSummary, SummaryLayout
from throughline.context.summaries.summary_prompt import PROMPT_VERSION, read_hash
from throughline.domain.basic_types import MessageId
from throughline.domain.errors import SummaryConflict
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import Adoption, KeptFact, NewSegment, Segment, SummaryState, SummaryWithSegments
from throughline.ports.storage import SummaryStore


@dataclass(frozen=True, slots=True)
class Assignment:
    """The session and settings of a summary being written; `limit_tokens` is its maximum size by our count.

    `is_rewriting`: messages that are already summarised are read again.
    """

    session: Session
    policy: SummaryPolicy
    limit_tokens: int
    lease: Lease | None = None
    is_rewriting: bool = False

    def layout(self, count: Count) -> SummaryLayout:
        """Return the layout by which the summary is divided."""
        return SummaryLayout(self.limit_tokens, self.policy.kind, count)


@dataclass(frozen=True, slots=True)
class Draft:
    """The summary of messages 1 to `through_position` so far.

    `segments` are stored segments without gaps, beginning at position 1. `replaced_tokens` is our count of the
    messages added since the session's adopted summary; in a draft that continues a prepared summary, that summary's
    text counts instead of its messages. `model` wrote the newest segment.
    """

    segments: tuple[Segment, ...] = ()
    kept_facts: tuple[KeptFact, ...] = ()
    through_position: int = 0
    through_id: MessageId | None = None
    model: str = ""
    replaced_tokens: int = 0

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
        if not kept:
            return Draft(kept_facts=self.kept_facts)
        return Draft(kept, self.kept_facts, kept[-1].through_position, kept[-1].through_id, kept[-1].model)

    def followed_by(self, segments: Sequence[Segment]) -> "Draft":
        """Return the draft with the stored segments that follow it, whose facts it already has."""
        if not segments:
            return self
        last = segments[-1]
        return replace(
            self,
            segments=(*self.segments, *segments),
            through_position=last.through_position,
            through_id=last.through_id,
            model=last.model,
        )

    def extended(self, segments: tuple[Segment, ...], facts: Sequence[KeptFact], replaced_tokens: int) -> "Draft":
        """Return the draft with `segments` instead of its present ones, and with `facts` merged into its own.

        The last segment must reach further than the draft. `replaced_tokens` is added to its count.
        """
        last = segments[-1]
        return replace(
            self,
            segments=segments,
            kept_facts=merge_kept_facts(self.kept_facts, facts) if facts else self.kept_facts,
            through_position=last.through_position,
            through_id=last.through_id,
            model=last.model,
            replaced_tokens=self.replaced_tokens + replaced_tokens,
        )

    def adoption(self, assignment: Assignment, count: Count) -> Adoption:
        """Return the version to adopt or prepare; the draft must reach beyond the session's summary."""
        session, policy = assignment.session, assignment.policy
        if self.through_id is None:
            raise AssertionError("an empty draft has nothing to adopt")
        text = self.rendered(session, assignment.layout(count))
        return Adoption(
            session_id=session.id,
            expected_version=session.summary_version,
            segment_ids=tuple(segment.id for segment in self.segments),
            text=text.text,
            token_count=text.tokens,
            kept_facts=self.kept_facts if policy.kind is SummaryKind.HYBRID else without_subjects(self.kept_facts),
            through_id=self.through_id,
            through_position=self.through_position,
            model=self.model,
            run_id=None if assignment.lease is None else assignment.lease.run_id,
            is_rewritten=assignment.is_rewriting,
            session_instructions=session.summary_instructions,
        )

    def adopted(self, assignment: Assignment, count: Count) -> Session:
        """Return the session as it will be once this draft is adopted; unchanged if it covers no further message."""
        session = assignment.session
        if self.through_position <= session.summary_through_position:
            return session
        adoption = self.adoption(assignment, count)
        return replace(
            session,
            conversation_summary=adoption.text,
            summary_tokens=adoption.token_count,
            summary_through_id=adoption.through_id,
            summary_through_position=adoption.through_position,
        )

    def rendered(self, session: Session, layout: SummaryLayout) -> RenderedSummary:
        """Return the text to adopt, within the limit and, if possible, smaller than what it replaces.

        Facts without room in the text stay stored with the version.
        """
        replaced = max(session.summary_tokens + self.replaced_tokens, SMALL_SUMMARY_TOKENS)
        return layout.render(self.segments, self.kept_facts, replaced)


async def open_draft(
    summaries: SummaryStore, session: Session, count: Count, *, lease: Lease | None, extends_prepared: bool
) -> Draft:
    """Return the draft with which the next summary of `session` begins: the adopted summary or the prepared one.

    The draft is empty if the session has no summary. Raises SummaryConflict if the session's summary, or the prepared
    one, has changed since `session` was read.
    """
    if extends_prepared:
        return await _draft_of_prepared(summaries, session)
    adopted = await summaries.load_parts(session.id, SummaryState.ADOPTED)
    if adopted is not None and adopted.version.version != session.summary_version:
        raise SummaryConflict("The session's summary has been changed.")
    if session.summary_through_position == 0 or session.summary_through_id is None:
        return Draft()
    if adopted is not None and _is_whole(adopted):
        return _draft_of_version(adopted)
    draft = await _draft_of_text(
        summaries, session, _segment_of_text(session, session.summary_through_id, count), lease
    )
    return draft if adopted is None else replace(draft, kept_facts=adopted.version.kept_facts)


async def _draft_of_prepared(summaries: SummaryStore, session: Session) -> Draft:
    prepared = await summaries.load_parts(session.id, SummaryState.PREPARED)
    if prepared is not None and _covers(prepared.segments, prepared.version.through_position):
        return replace(_draft_of_version(prepared), replaced_tokens=prepared.version.token_count)
    raise SummaryConflict("The prepared summary has been adopted or replaced.")


async def _draft_of_text(summaries: SummaryStore, session: Session, new: NewSegment, lease: Lease | None) -> Draft:
    """Store a summary text without known segments as one segment, so that others can follow it."""
    segment = await summaries.save_segment(session.id, new, lease)
    return Draft(
        segments=(segment,),
        through_position=segment.through_position,
        through_id=segment.through_id,
        model=segment.model,
    )


def _draft_of_version(parts: SummaryWithSegments) -> Draft:
    version = parts.version
    return Draft(
        segments=parts.segments,
        kept_facts=version.kept_facts,
        through_position=version.through_position,
        through_id=version.through_id,
        model=version.model,
    )


def _is_whole(parts: SummaryWithSegments) -> bool:
    """Return whether the version's segments together make up its text.

    In versions written before facts were kept, the last segment alone contains everything.
    """
    segments, version = parts.segments, parts.version
    is_cumulative = len(segments) > 1 and segments[-1].text == version.text
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
        text=text,
        token_count=count(text),
        model="",
        prompt_version=PROMPT_VERSION,
        read_hash=read_hash(text, ()),
        duration_seconds=0,
        input_tokens=0,
        output_tokens=0,
        redaction_count=session.redaction_count,
    )
