"""Source of summary segments: found in this session, copied from another session of the owner, or written by a model.

Choices of facts use it, too, because they are stored like segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from throughline.context.placeholder_texts import RECALL_TOOLS
from throughline.context.summaries.cited_facts import cited_facts
from throughline.context.summaries.parse_keep_lines import taken_facts
from throughline.context.summaries.summary_prompt import PROMPT_VERSION, request_hash
from throughline.domain.ids import UserId
from throughline.domain.message import Message
from throughline.domain.summary import CHOICE_LEVEL, KeptFact, NewSegment, Segment, WantedSegment
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.ports.summaries import SummaryStore
from throughline.turn.summary.summariser import Ask, Summariser, Written
from throughline.turn.summary.summariser_calls import SummariserCalls
from throughline.turn.summary.summary_draft import Assignment, Draft


def instructions_of(summariser: Summariser) -> str:
    """Return the style and instructions for the text; they are part of the hash by which a segment is found again."""
    return "\n".join(part for part in (summariser.policy.style, summariser.instructions) if part)


def without_recall_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages from which facts are kept: all but results of recall tools, which repeat earlier messages."""
    return tuple(message for message in messages if message.name not in RECALL_TOOLS)


def facts_from_answer(written: Written, said: Sequence[Message]) -> tuple[KeptFact, ...]:
    """Return the facts of the messages `said` that the model named below its text, and those that the text cites."""
    return (*taken_facts(written.keep_lines, said), *cited_facts(written.text, written.keep_lines, said))


def request_key(
    owner_id: UserId, summariser: Summariser, ask: Ask, read: Sequence[Message] = (), level: int = 0
) -> str:
    """Return the hash by which the owner's other sessions find the answer to `ask`.

    It covers the owner, the model, the request and its limits, and the messages `read` as stored.
    """
    numbers = (ask.max_tokens, ask.keep_tokens, level)
    return request_hash(str(owner_id), summariser.key, ask.prompt, numbers, read)


def new_segment(written: Written, wanted: WantedSegment, level: int = 0) -> NewSegment:
    """Return the segment to store, made from what was written for `wanted`."""
    return NewSegment(
        from_position=wanted.from_position,
        through_position=wanted.through_position,
        through_id=wanted.through_id,
        text=written.text,
        token_count=written.tokens,
        model=written.model,
        prompt_version=PROMPT_VERSION,
        read_hash=wanted.read_hash,
        request_hash=wanted.request_hash,
        duration_seconds=written.seconds,
        input_tokens=written.input_tokens,
        output_tokens=written.output_tokens,
        level=level,
    )


MANY_CHARACTERS = 8_000
"""Length of a text from which facts are searched in a worker thread: 48,000 characters take a quarter of a second."""


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """Source of the segments of one session; newly written ones are stored at once."""

    summaries: SummaryStore
    assignment: Assignment
    calls: SummariserCalls

    async def find(self, read_hash: str) -> Segment | None:
        """Return the session's own segment that was made from exactly this input, None without one."""
        return await self.summaries.find_segment(self.assignment.session.id, read_hash)

    async def copied_or_written(
        self, summariser: Summariser, ask: Ask, wanted: WantedSegment, read: Sequence[Message] = (), level: int = 0
    ) -> Segment:
        """Return the segment for `ask`: another session's answer to the same request, or else a newly written one.

        The facts of the messages `read` are kept with a new segment. Raises what SummariserCalls.ask raises, and
        LeaseLost, SummaryConflict, DatabaseUnavailable.
        """
        session = self.assignment.session
        hashing = partial(request_key, session.owner_id, summariser, ask, read, level)
        asked = await run_off_loop_if_large(characters_of(read), hashing)
        known = replace(wanted, request_hash=asked, redaction_count=session.redaction_count)
        copied = await self.summaries.copy_segment(session.id, known, self.assignment.lease)
        if copied is not None:
            return copied
        written = await self.calls.ask(summariser, ask)
        said = without_recall_results(read) if ask.keep_tokens else ()
        naming = partial(facts_from_answer, written, said)
        named = await run_off_loop_if_large(characters_of(said), naming, large=MANY_CHARACTERS)
        return await self.save(replace(new_segment(written, known, level), kept_facts=named))

    async def choice(self, draft: Draft, summariser: Summariser, ask: Ask) -> str:
        """Return the answer to a request to choose facts of the draft. Raises the same as `copied_or_written`."""
        if draft.through_id is None:
            raise AssertionError("an empty draft has no facts to choose from")
        known = request_key(self.assignment.session.owner_id, summariser, ask, level=CHOICE_LEVEL)
        found = await self.find(known)
        if found is None:
            wanted = WantedSegment(1, draft.through_position, draft.through_id, known)
            found = await self.copied_or_written(summariser, ask, wanted, level=CHOICE_LEVEL)
        return found.text

    async def save(self, new: NewSegment) -> Segment:
        """Store a segment, or return the stored one that was made from the same input.

        Raises SummaryConflict if a message was redacted since it was read, LeaseLost, NotFound, DatabaseUnavailable.
        """
        session = self.assignment.session
        known = replace(new, redaction_count=session.redaction_count)
        segment = await self.summaries.save_segment(session.id, known, self.assignment.lease)
        self.calls.saved()
        return segment
