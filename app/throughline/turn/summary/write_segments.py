"""Writes summary segments: messages are read chunk by chunk, and neighbouring segments are merged.

A segment is found in this session, copied from another session of the owner, or written by a model. It is stored
before the next is requested, and found again by a hash of what was read, so that nothing is paid for twice. Choices of
facts are stored like segments. The cursor does not move here.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import structlog

from throughline.context.policy import SummaryKind, SummaryShape
from throughline.context.summaries.check_summary import Sources, Verdict, check_summary
from throughline.context.summaries.facts_choice_prompt import Choice, choice_of, counted
from throughline.context.summaries.find_facts import cited_facts, facts_of, subjects_again
from throughline.context.summaries.keep_lines import taken_facts
from throughline.context.summaries.segment_ends import (
    LEAST_NODE_TOKENS,
    MERGED,
    MergeTask,
    SummaryLayout,
    merge_due,
    merge_of_large,
    segment_tokens,
)
from throughline.context.summaries.summary_prompt import (
    PROMPT_VERSION,
    SMALLEST_BUDGET,
    TextRequest,
    merge_hash,
    merge_request,
    read_hash,
    render_transcript,
    request_hash,
    segment_request,
    summary_request,
)
from throughline.context.view.placeholder_texts import RECALL_TOOLS
from throughline.domain.basic_types import UserId
from throughline.domain.errors import ContextOverflow, ModelRejected, ModelUnavailable, SummaryConflict, provider_words
from throughline.domain.message import Message
from throughline.domain.prompt import Prompt
from throughline.domain.session import Session
from throughline.domain.summary import CHOICE_LEVEL, Adoption, KeptFact, NewSegment, Segment, WantedSegment
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.ports.storage import SummaryStore
from throughline.turn.summary.summariser import Ask, NotWorthIt, Summariser, SummaryRejected, Written, first_chunk
from throughline.turn.summary.summariser_calls import SUMMARISER_ERRORS, SummariserCalls
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


Facts = tuple[KeptFact, ...]
Asking = Callable[[Summariser, Ask], Awaitable[str]]


async def choose_facts(
    facts: Facts, room_tokens: int, summarisers: Sequence[Summariser], calls: SummariserCalls, asking: Asking
) -> Facts:
    """Return the facts with a model's choice counted, if they exceed `room_tokens` and enough of them are new.

    `asking` sends the request and returns the model's answer. If the last model tried rejects the request, or has no
    room for it, the facts no longer count as new. After any other failure nothing changes, and the choice is tried
    again later.
    """
    due = choice_of(facts, room_tokens, summarisers[0].count)
    if not due.listed:
        return facts
    try:
        return await calls.first_success(summarisers, partial(_choose, facts, room_tokens, due.answer_tokens, asking))
    except (ModelRejected, SummaryRejected) as error:
        log.info("choice among kept facts given up", error=error.code, **provider_words(error))
        return counted(facts, due, "")
    except SUMMARISER_ERRORS as error:
        log.info("choice among kept facts postponed", error=error.code, **provider_words(error))
        return facts


async def _choose(facts: Facts, room_tokens: int, answer_tokens: int, asking: Asking, summariser: Summariser) -> Facts:
    """Let one model choose; facts that its list had no room for are not judged."""
    list_tokens = summariser.request_tokens(answer_tokens) - summariser.prompt_tokens(Choice((), 0).request)
    choice = choice_of(facts, room_tokens, summariser.count, list_tokens)
    if not choice.listed:
        raise SummaryRejected("The summary model's window has no room for a list with enough new facts.")
    return counted(facts, choice, await asking(summariser, Ask(choice.request, choice.answer_tokens)))


HALVINGS = 3
"""Number of times that a chunk refused as too long is halved before the smallest size is tried."""

BY_HOOK = "pre_compact"
"""Stored in place of a model's name for a text that the hook wrote."""

log = structlog.get_logger(__name__)


class CallSize(NamedTuple):
    """The tokens of one call for a segment: messages read, the rest of the request, and at most the answer.

    `messages` is the most messages that it reads, None for as many as fit. Segments whose texts take more than
    `unmerged` tokens are merged; None if they never are.
    """

    read: int
    beside: int
    written: int
    messages: int | None
    unmerged: int | None


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive messages; `more_follows` says that further messages are to be read after them."""

    messages: tuple[Message, ...]
    more_follows: bool = False


@dataclass(slots=True)
class SegmentWriter:
    """Writer that extends `draft` by new segments. The summary models are tried in order.

    `rooms` holds the chunk size that each model was found to accept. `unmerged` are segments that a model failed to
    merge; they are not tried again in this compaction. `measured` caches the tokens that the narrative may take in a
    draft.
    """

    summaries: SummaryStore
    assignment: Assignment
    summarisers: tuple[Summariser, ...]
    calls: SummariserCalls
    draft: Draft
    rooms: dict[str, int] = field(default_factory=dict)
    unmerged: tuple[Segment, ...] = ()
    measured: tuple[Draft | None, int] = (None, 0)

    async def room_tokens(self) -> int:
        """Return the most tokens of messages for one segment, by our count: what the first model can read at once."""
        return await self._room(self.summarisers[0])

    async def call_size(self) -> CallSize:
        """Return the size of one call for a segment, by our count."""
        first, most = self.summarisers[0], await self._max_tokens()
        request = first.prompt_tokens(self._request((), first, most))
        return CallSize(
            read=await self.room_tokens(),
            beside=request,
            written=most + first.keep_tokens,
            messages=first.policy.chunk_messages,
            unmerged=None if self._is_rolling else self._layout.narrative_tokens,
        )

    async def read(self, batch: Batch, *, until: float = math.inf) -> None:
        """Summarise the batch, which follows the draft, segment by segment; finished segments stay in the draft.

        If more messages follow, the last ones are left for a segment that they fill together with those. Outside turns,
        segments are merged after each one, so that an interruption leaves no merge undone. No new segment begins after
        `until` (of the calls' clock). Raises NotWorthIt, SUMMARISER_ERRORS, LeaseLost, DatabaseUnavailable.
        """
        rest = batch.messages
        while rest and self.calls.clock.monotonic() < until:
            taken = await self.calls.first_success(self.summarisers, partial(self._read_next, rest))
            rest = rest[taken:]
            if self.assignment.lease is None and (rest or batch.more_follows):
                await self.merge()
            if batch.more_follows and not await self._fills_segment(rest):
                return

    async def merge(self) -> None:
        """Merge neighbouring segments while there are too many; a failed merge is left for the next time.

        Raises LeaseLost, DatabaseUnavailable.
        """
        while (task := await self._merge_due()) is not None:
            segments = self.draft.segments
            parts = segments[task.start : task.stop]
            if parts == self.unmerged:
                return
            try:
                merged = await self.calls.first_success(self.summarisers, partial(self._merge, task, parts))
            except (*SUMMARISER_ERRORS, NotWorthIt) as error:
                log.info(
                    "merge of summary segments postponed", error=error.code, level=task.level, **provider_words(error)
                )
                self.unmerged = () if isinstance(error, ModelUnavailable) else parts
                return
            self.draft = replace(self.draft, segments=(*segments[: task.start], merged, *segments[task.stop :]))

    async def choose_facts(self) -> None:
        """Let a model choose the most important kept facts if there is no room for all."""
        facts, room_tokens = self.draft.kept_facts, self._layout.fact_tokens(self.draft.kept_facts)
        chosen = await choose_facts(facts, room_tokens, self.summarisers, self.calls, self._choice)
        self.draft = replace(self.draft, kept_facts=chosen)

    async def take(self, text: str, reached: Session, facts: Sequence[KeptFact], replaced_tokens: int) -> bool:
        """Use `text` as the summary of all messages up to the cursor of `reached`; return False if it fails the checks.

        `text` comes from the agent's hook. `facts` are kept beside it.
        """
        limit, sources = await self._free_tokens(), Sources(reach=(1, reached.summary_through_position))
        check = partial(check_summary, text, replaced_tokens=replaced_tokens, max_tokens=limit, count=self._count)
        checked = await run_off_loop_if_large(len(text), partial(check, sources=sources))
        if checked.verdict is not Verdict.ACCEPT or reached.summary_through_id is None:
            return False
        written = Written(checked.text, checked.tokens, BY_HOOK, input_tokens=0, output_tokens=0, seconds=0)
        first, last = self.draft.through_position + 1, reached.summary_through_position
        known = read_hash(checked.text, (), f"{BY_HOOK} {first} {last}")
        wanted = WantedSegment(first, last, reached.summary_through_id, known)
        segment = await self._save(new_segment(written, wanted))
        self.draft = self.draft.extended((*self.draft.segments, segment), facts, replaced_tokens)
        return True

    async def adoption(self) -> Adoption:
        """Return the version to adopt or prepare. The draft must reach beyond the session's summary."""
        making = partial(self.draft.adoption, self.assignment, self._count)
        return await run_off_loop_if_large(self.draft.characters, making, large=MANY_CHARACTERS)

    async def session(self) -> Session:
        """Return the session as it will be once the draft is adopted."""
        making = partial(self.draft.adopted, self.assignment, self._count)
        return await run_off_loop_if_large(self.draft.characters, making, large=MANY_CHARACTERS)

    @property
    def reaches_further(self) -> bool:
        """Whether the draft covers more messages than the session's summary."""
        return self.draft.through_position > self.assignment.session.summary_through_position

    @property
    def _layout(self) -> SummaryLayout:
        return self.assignment.layout(self._count)

    @property
    def _count(self) -> Callable[[str], int]:
        return self.summarisers[0].count

    @property
    def _is_rolling(self) -> bool:
        """Whether the summary is one text that is rewritten each time.

        It is so by the policy, or if the summary is too small for three readable segments.
        """
        is_too_small = self._layout.narrative_tokens < (MERGED - 1) * LEAST_NODE_TOKENS
        return is_too_small or self.assignment.policy.shape is SummaryShape.ROLLING

    async def _merge_due(self) -> MergeTask | None:
        """Return the next merge, None if none is due.

        A hook's texts may be as large as the whole narrative and are merged in a rolling summary, too. A model's texts
        are made to fit.
        """
        segments, room = self.draft.segments, self._layout.narrative_tokens
        free = await self._free_tokens()
        due = None if self._is_rolling else merge_due(segments, room, free)
        if due is not None or not any(segment.model == BY_HOOK for segment in segments):
            return due
        return merge_of_large(segments, free)

    async def _read_next(self, rest: tuple[Message, ...], summariser: Summariser) -> int:
        """Summarise the beginning of `rest`; return the number of messages summarised.

        A chunk that the model refuses as too long is halved, for this compaction only. The chunk is also halved for
        each consecutive call that timed out.
        """
        room = await self._room(summariser)
        if time_outs := self.calls.time_outs(summariser):
            tokens = sum(message.token_count for message in rest)
            room = self.rooms[summariser.key] = max(min(room, tokens) >> time_outs, SMALLEST_BUDGET)
        for _ in range(HALVINGS):
            chunk = await first_chunk(rest, room, summariser)
            try:
                return await self._read_chunk(chunk, rest, summariser)
            except ContextOverflow:
                used = summariser.count(render_transcript(chunk))
                room = max(min(room, used) // 2, SMALLEST_BUDGET)
                self.rooms[summariser.key] = room
        smallest = await first_chunk(rest, SMALLEST_BUDGET, summariser)
        try:
            return await self._read_chunk(smallest, rest, summariser)
        except ContextOverflow:
            self.calls.too_long(summariser)
            raise

    async def _fills_segment(self, messages: Sequence[Message]) -> bool:
        most = self.assignment.policy.chunk_messages
        is_many = most is not None and len(messages) > most
        return is_many or sum(message.token_count for message in messages) > await self.room_tokens()

    async def _room(self, summariser: Summariser) -> int:
        """Return the most tokens of a transcript in the model's window, by our count, as far as known so far."""
        most = await self._max_tokens()
        request = self._request((), summariser, most)
        room = summariser.transcript_tokens(request, most + summariser.keep_tokens)
        return min(self.rooms.get(summariser.key, room), room)

    async def _read_chunk(self, chunk: tuple[Message, ...], rest: tuple[Message, ...], summariser: Summariser) -> int:
        """Summarise the chunk, which is the beginning of `rest`, possibly shortened for the model.

        Facts are taken from the unshortened messages in `rest`.
        """
        if chunk[0].position != self.draft.through_position + 1:
            raise SummaryConflict("The messages to read do not follow the summarised messages.")
        existing, read = self.draft.text if self._is_rolling else "", rest[: len(chunk)]
        known = read_hash(existing, chunk, instructions_of(summariser), names_facts=summariser.keep_tokens > 0)
        segment = await self._find(known)
        if segment is None:
            segment = await self._summarise(chunk, read, summariser, known)
        facts = await self.facts(without_recall_results(read), segment.kept_facts)
        kept = () if self._is_rolling else self.draft.segments
        replaced = sum(message.token_count for message in chunk)
        self.draft = self.draft.extended((*kept, segment), facts, replaced)
        return len(chunk)

    async def _summarise(
        self, chunk: tuple[Message, ...], read: tuple[Message, ...], summariser: Summariser, known: str
    ) -> Segment:
        """Return a segment for the chunk, copied or written. `read` holds the same messages unshortened."""
        first = 1 if self._is_rolling else self.draft.through_position + 1
        reach, most = (first, chunk[-1].position), await self._max_tokens()
        replaced = sum(message.token_count for message in chunk)
        replaced += summariser.count(self.draft.text) if self._is_rolling and self.draft.text else 0
        asking = partial(self._request, chunk, summariser, most)
        prompt = await run_off_loop_if_large(characters_of(chunk), asking)
        ask = Ask(prompt, most, replaced, reach, keep_tokens=summariser.keep_tokens)
        wanted = WantedSegment(*reach, chunk[-1].id, known)
        return await self._copied_or_written(summariser, ask, wanted, read)

    async def facts(self, messages: Sequence[Message], named: Sequence[KeptFact] = ()) -> tuple[KeptFact, ...]:
        """Return the facts kept verbatim from `messages`: those that the model named, and those that rules find.

        Empty if the agent's policy wants the narrative alone.
        """
        if self.assignment.policy.kind is not SummaryKind.HYBRID:
            return ()
        finding = partial(facts_of, messages, named, self.draft.kept_facts)
        return await run_off_loop_if_large(characters_of(messages), finding, large=MANY_CHARACTERS)

    async def _merge(self, task: MergeTask, parts: tuple[Segment, ...], summariser: Summariser) -> Segment:
        known = merge_hash(parts, instructions_of(summariser))
        found = await self._find(known)
        if found is not None:
            return found
        prompt = merge_request(parts, summariser.policy, TextRequest(task.max_tokens, summariser.instructions))
        replaced = sum(part.token_count for part in parts)
        reach = (parts[0].from_position, parts[-1].through_position)
        ask = Ask(prompt, task.max_tokens, replaced, reach)
        wanted = WantedSegment(*reach, parts[-1].through_id, known)
        return await self._copied_or_written(summariser, ask, wanted, level=task.level)

    async def _find(self, read_hash: str) -> Segment | None:
        """Return the session's own segment that was made from exactly this input, None without one."""
        return await self.summaries.find_segment(self.assignment.session.id, read_hash)

    async def _copied_or_written(
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
        return await self._save(replace(new_segment(written, known, level), kept_facts=named))

    async def _choice(self, summariser: Summariser, ask: Ask) -> str:
        """Return the answer to a request to choose facts of the draft. Raises the same as `_copied_or_written`."""
        draft = self.draft
        if draft.through_id is None:
            raise AssertionError("an empty draft has no facts to choose from")
        known = request_key(self.assignment.session.owner_id, summariser, ask, level=CHOICE_LEVEL)
        found = await self._find(known)
        if found is None:
            wanted = WantedSegment(1, draft.through_position, draft.through_id, known)
            found = await self._copied_or_written(summariser, ask, wanted, level=CHOICE_LEVEL)
        return found.text

    async def _save(self, new: NewSegment) -> Segment:
        """Store a segment, or return the stored one that was made from the same input.

        Raises SummaryConflict if a message was redacted since it was read, LeaseLost, NotFound, DatabaseUnavailable.
        """
        session = self.assignment.session
        known = replace(new, redaction_count=session.redaction_count)
        segment = await self.summaries.save_segment(session.id, known, self.assignment.lease)
        self.calls.saved()
        return segment

    async def _free_tokens(self) -> int:
        """Return the tokens that the narrative may take besides the facts, computed once per draft."""
        draft = self.draft
        if self.measured[0] is not draft:
            measuring = partial(self._layout.free_narrative_tokens, draft.kept_facts, draft.segments)
            self.measured = draft, await run_off_loop_if_large(draft.characters, measuring, large=MANY_CHARACTERS)
        return self.measured[1]

    async def _max_tokens(self) -> int:
        free = await self._free_tokens()
        if self._is_rolling:
            return min(free, self._layout.rolling_tokens)
        return segment_tokens(self.draft.segments, self._layout.narrative_tokens, free)

    def _request(self, chunk: Sequence[Message], summariser: Summariser, max_tokens: int) -> Prompt:
        subjects = subjects_again(self.draft.kept_facts, chunk) if summariser.keep_tokens else None
        asked = TextRequest(max_tokens, summariser.instructions, subjects)
        if self._is_rolling:
            return summary_request(self.draft.text, chunk, summariser.policy, asked)
        return segment_request(chunk, summariser.policy, asked)
