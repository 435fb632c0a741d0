"""Segments of a summary that are found in the session, copied from another session of the owner, or newly written.

A segment is found again by a hash of what was read, and stored before the next is requested, so that nothing is paid
for twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from throughline.context.policy import SummaryKind
from throughline.context.summaries.find_facts import without_recall_results
from throughline.context.summaries.summary_prompt import TextRequest
from throughline.domain.basic_types import MessageId
from throughline.domain.message import Message
from throughline.domain.summary import NewSegment, Segment
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.turn.summary.compaction import Compaction, request_key, with_facts, with_text
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.summariser import Summariser
from throughline.turn.summary.summariser_calls import SummariserCalls

MANY_CHARACTERS = 8_000
"""Length of a text from which facts are searched in a worker thread: 48,000 characters take a quarter of a second."""


@dataclass(frozen=True, slots=True)
class StoredSegments:
    """The stored segments that one compaction may use, and the calls that write further ones."""

    dependencies: SummaryDependencies
    compaction: Compaction
    calls: SummariserCalls

    async def find(self, read_hash: str) -> Segment | None:
        """Return the session's own segment that was made from exactly this input, None without one."""
        return await self.dependencies.summaries.find_segment(self.compaction.session.id, read_hash)

    def new_segment(self, reach: tuple[int, int], through_id: MessageId, read_hash: str, level: int = 0) -> NewSegment:
        """Return a segment without a text, for messages from `reach[0]` to `reach[1]`, found by `read_hash`."""
        redactions = self.compaction.session.redaction_count
        return NewSegment(*reach, through_id, read_hash, level=level, redaction_count=redactions)

    async def copied_or_written(
        self, summariser: Summariser, asked: TextRequest, wanted: NewSegment, read: Sequence[Message] = ()
    ) -> Segment:
        """Return the segment for `asked`: another session's answer to the same request, or else a newly written one.

        The facts of the messages `read` are kept with a new segment. Raises what SummariserCalls.ask raises, and
        LeaseLost, SummaryConflict, DatabaseUnavailable.
        """
        session = self.compaction.session
        hashing = partial(request_key, session.owner_id, summariser, asked, read, wanted.level)
        known = replace(wanted, request_hash=await run_off_loop_if_large(characters_of(read), hashing))
        copied = await self.dependencies.summaries.copy_segment(session.id, known, self.compaction.lease)
        if copied is not None:
            return copied
        written = await self.calls.ask(summariser, asked)
        said = without_recall_results(read) if self.compaction.policy.kind is SummaryKind.HYBRID else ()
        lines = self.calls.refused_lines if summariser.is_extracting else written.keep_lines
        naming = partial(with_facts, with_text(known, written), lines, said, summariser.count)
        return await self.save(await run_off_loop_if_large(characters_of(said), naming, large=MANY_CHARACTERS))

    async def save(self, new: NewSegment) -> Segment:
        """Store a segment, or return the stored one that was made from the same input.

        Raises SummaryConflict if a message was redacted since it was read, LeaseLost, NotFound, DatabaseUnavailable.
        """
        segment = await self.dependencies.summaries.save_segment(self.compaction.session.id, new, self.compaction.lease)
        self.calls.saved()
        return segment
