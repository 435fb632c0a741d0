"""Writes one summary: asks the agent's hook, reads batch by batch, and makes segments of the messages, within a time.

A segment is found in this session, copied from another session of the owner, or written by a model. It is stored
before the next is requested, and found again by a hash of what was read, so that nothing is paid for twice. Choices of
facts are stored like segments. The cursor does not move here.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from throughline.context.compaction.compaction_triggers import has_hidden_messages
from throughline.context.policy import SummaryKind
from throughline.context.summaries.check_summary import NotWorthIt, SummaryRejected, check_summary
from throughline.context.summaries.find_facts import facts_of, subjects_again, without_recall_results
from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.context.summaries.summary_layout import MergeTask, merge_due, merge_of_large, segment_tokens
from throughline.context.summaries.summary_prompt import (
    SMALLEST_BUDGET,
    TextRequest,
    merge_hash,
    merge_request,
    read_hash,
    render_transcript,
    segment_request,
    summary_request,
)
from throughline.domain.errors import (
    ContextOverflow,
    ModelUnavailable,
    SettingInvalid,
    SummaryConflict,
    ThroughlineError,
    provider_words,
)
from throughline.domain.message import Message
from throughline.domain.prompt import Prompt
from throughline.domain.session import Session
from throughline.domain.summary import (
    CHOICE_LEVEL,
    Adoption,
    CompactionOutcome,
    CompactionResult,
    KeptFact,
    Segment,
)
from throughline.domain.usage_report import Payer
from throughline.execution.compute_threads import characters_of, run_off_loop_if_large
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.hooks import PreCompact
from throughline.turn.summary.choose_facts import choose_facts
from throughline.turn.summary.compaction import Compaction, Draft, open_draft, request_key, with_text
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.pre_compact import CANCELLED_BY_HOOK, ask_hook
from throughline.turn.summary.read_messages import plan_batch, read_batch
from throughline.turn.summary.stored_segments import MANY_CHARACTERS, StoredSegments
from throughline.turn.summary.summariser import (
    EXTRACTING_MODEL,
    Summariser,
    find_extracting,
    find_summarisers,
    first_chunk,
)
from throughline.turn.summary.summariser_calls import (
    SUMMARISER_ERRORS,
    SummariserCalls,
    TextsRefused,
    Written,
    begin_calls,
)

NOTHING_TO_READ = "The remaining messages are the newest ones, and a call and its results stay together."
NOT_WRITTEN = "The summary could not be written."

BY_HOOK = "pre_compact"
"""Stored in place of a model's name for a text that the hook wrote."""

EXTRACT_SECONDS = 2
"""Most seconds in which further extracts begin after the time for a summary was up."""

HALVINGS = 3
"""Number of times that a chunk refused as too long is halved before the smallest size is tried."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


def begin_summary(
    dependencies: SummaryDependencies, compaction: Compaction, event: PreCompact, *, round_seconds: float = math.inf
) -> "SummaryWriter":
    """Return the writer of a summary, whose time limit begins now; `event` is for the agent's hook."""
    calls = begin_calls(dependencies, event.session_id, compaction.limit_seconds, compaction.policy.timeout_seconds)
    calls.is_in_turn = compaction.is_in_turn
    return SummaryWriter(dependencies, compaction, event, calls, round_seconds=round_seconds)


@dataclass(slots=True)
class SummaryWriter:
    """Writer of one summary. `draft` is what is finished so far, also after a failure.

    The summary models are tried in order. After `round_seconds` no further messages are read; the segments read by then
    are complete. `rooms` holds the chunk size that each model was found to accept. `unmerged` are segments that a model
    failed to merge; they are not tried again in this compaction. `extract_reason` says why an extract replaces a
    model's text, '' if none does. `measured` caches the tokens that the narrative may take in a draft.
    """

    dependencies: SummaryDependencies
    compaction: Compaction
    event: PreCompact
    calls: SummariserCalls
    summarisers: tuple[Summariser, ...] = ()
    draft: Draft = field(default_factory=Draft)
    round_seconds: float = math.inf
    rooms: dict[str, int] = field(default_factory=dict)
    unmerged: tuple[Segment, ...] = ()
    extract_reason: str = ""
    measured: tuple[Draft | None, int] = (None, 0)

    async def run(self) -> CompactionResult:
        """Write until all is read, the time is up or something fails; return why it ended.

        Any error of a model's adapter or a counter becomes a failed result, so that no turn fails because of it. Raises
        LeaseLost, DatabaseUnavailable.
        """
        session_id = self.event.session_id
        try:
            with ErrorBoundary(log.error, task="summary", lets_through=(ThroughlineError,), session_id=session_id):
                return await self._write_within_time()
            return self.compaction.unchanged(CompactionOutcome.FAILED, NOT_WRITTEN)
        finally:
            await self._store_calls()

    @property
    def rest_seconds(self) -> float:
        """Seconds until the first of the summary models may be called again; 0 if one may be called now."""
        return min((self.calls.rest_seconds(one) for one in self.summarisers), default=0.0)

    @property
    def reaches_further(self) -> bool:
        """Whether the draft covers more messages than the session's summary."""
        return self.draft.through_position > self.compaction.session.summary_through_position

    async def session(self) -> Session:
        """Return the session as it will be once the draft is adopted."""
        return await self._of_draft(partial(self.draft.adopted, self.compaction))

    async def adoption(self) -> Adoption:
        """Return the version to adopt or prepare. The draft must reach beyond the session's summary."""
        return await self._of_draft(partial(self.draft.adoption, self.compaction))

    async def _of_draft(self, work: Callable[[], T], more: Sequence[KeptFact] = ()) -> T:
        """Return the result of `work`, computed in a thread if the draft and `more` facts are large."""
        size = self.draft.characters + sum(len(fact.text) for fact in more)
        return await run_off_loop_if_large(size, work, large=MANY_CHARACTERS)

    async def _store_calls(self) -> None:
        """Store what the model calls used, also those of unusable answers; if that fails, it is only logged."""
        task, session = self.compaction, self.compaction.session
        payer = Payer(session.owner_id, session.id, task.run_id, task.agent.definition.name)
        with ErrorBoundary(log.warning, "model calls not stored", session_id=self.event.session_id):
            await self.dependencies.usage.store_calls(payer, self.calls.answered)

    async def _write_within_time(self) -> CompactionResult:
        limit, ended = self.compaction.limit_seconds, self.compaction.unchanged
        try:
            async with asyncio.timeout(limit):
                return await self._write_all()
        except TimeoutError:
            self.calls.timed_out()
            late = f"The time for it, {limit:.3g} seconds, was up."
            is_extracted = bool(self.summarisers) and self._is_needed_now  # without models nothing was begun
            return await self._extract_rest(late) if is_extracted else ended(CompactionOutcome.FAILED, late)
        except NotWorthIt as error:
            return ended(CompactionOutcome.SKIPPED, error.detail)
        except SummaryConflict:
            return self.compaction.overtaken()
        except (*SUMMARISER_ERRORS, SettingInvalid) as error:
            log.warning("summary failed", session_id=self.event.session_id, error=error.code, **provider_words(error))
            return ended(CompactionOutcome.FAILED, error.detail)

    async def _extract_rest(self, reason: str) -> CompactionResult:
        """Let extracts stand for what no model summarised in time, for EXTRACT_SECONDS; return why none did."""
        try:
            self.summarisers, self.round_seconds = (await self._begin_extract(reason),), EXTRACT_SECONDS
            await self._read_batches()
        except SummaryConflict:
            return self.compaction.overtaken()
        except (*SUMMARISER_ERRORS, NotWorthIt) as error:
            log.info("extract failed", session_id=self.event.session_id, error=error.code)
        return self.compaction.unchanged(CompactionOutcome.FAILED, reason)

    async def _write_all(self) -> CompactionResult:
        decision = await ask_hook(self.dependencies, self.compaction, self.event)
        if decision.cancel:
            return self.compaction.unchanged(CompactionOutcome.CANCELLED, CANCELLED_BY_HOOK)
        await self.open(decision.instructions)
        if not (decision.summary and await self._take_hook_text(decision.summary)):
            await self._read_batches()
        await self.merge()
        if not self.compaction.is_in_turn:
            await self.choose_facts()
        return self.compaction.unchanged(CompactionOutcome.SKIPPED, NOTHING_TO_READ)

    async def open(self, instructions: str = "") -> None:
        """Begin the draft, and find the models, for the instructions of the session, the request and the hook.

        Raises SummaryConflict, and SummaryRejected for instructions that no summary model has room for.
        """
        task = self.compaction
        parts = (task.session.summary_instructions, task.instructions, instructions)
        draft = task.beginning or await open_draft(self.dependencies.summaries, task)
        wanted = "\n".join(part for part in parts if part)
        self.summarisers = await find_summarisers(self.dependencies, task.agent, wanted)
        self.draft = draft

    async def _read_batches(self) -> None:
        until, plan = self.calls.clock.monotonic() + self.round_seconds, self.compaction.plan
        while self.calls.clock.monotonic() < until:
            session = await self.session()
            plan = await plan_batch(self.compaction, plan, session)
            messages, more = await read_batch(self.dependencies.messages, plan, session, await self.room_tokens())
            if not messages:
                return
            await self.read(messages, more_follows=more, until=until)

    async def _take_hook_text(self, text: str) -> bool:
        """Use the hook's text for all messages to be read; facts are kept nevertheless.

        Return False if there is no message to read, or the text fails the checks.
        """
        session, plan, replaced = await self.session(), self.compaction.plan, 0
        last: Message | None = None
        facts: tuple[KeptFact, ...] = ()
        while True:
            plan = await plan_batch(self.compaction, plan, session)
            messages, _ = await read_batch(self.dependencies.messages, plan, session, await self.room_tokens())
            if not messages:
                break
            replaced += sum(message.token_count for message in messages)
            found = await self._facts(without_recall_results(messages))
            facts = await self._of_draft(partial(merge_kept_facts, facts, found), (*facts, *found))
            last = messages[-1]
            session = replace(session, summary_through_id=last.id, summary_through_position=last.position)
        if last is not None and await self._take(text, last, facts, replaced):
            return True
        log.warning("summary text of pre_compact hook rejected", session_id=self.event.session_id)
        return False

    async def _take(self, text: str, last: Message, facts: Sequence[KeptFact], replaced_tokens: int) -> bool:
        """Use `text` as the summary of all messages up to `last`; return False if it fails the checks."""
        asked = TextRequest(Prompt("", ()), await self._free_tokens(), replaced_tokens, reach=(1, last.position))
        try:
            checking = partial(check_summary, text, asked, self.compaction.count)
            checked, tokens = await run_off_loop_if_large(len(text), checking)
        except (SummaryRejected, NotWorthIt):
            return False
        reach = (self.draft.through_position + 1, last.position)
        new = self.stored.new_segment(reach, last.id, read_hash(checked, (), f"{BY_HOOK} {reach[0]} {reach[1]}"))
        segment = await self.stored.save(with_text(new, Written(checked, BY_HOOK, tokens=tokens)))
        segments = (*self.draft.segments, segment)
        self.draft = await self._of_draft(partial(self.draft.extended, segments, facts, replaced_tokens), facts)
        return True

    async def room_tokens(self) -> int:
        """Return the most tokens of messages for one segment, by our count: what the first model can read at once."""
        return await self._room(self.summarisers[0])

    async def read(self, messages: tuple[Message, ...], *, more_follows: bool = False, until: float = math.inf) -> None:
        """Summarise the messages, which follow the draft, segment by segment; finished segments stay in the draft.

        If more messages follow, the last ones are left for a segment that they fill together with those. Outside turns,
        segments are merged after each one, so that an interruption leaves no merge undone. No new segment begins after
        `until` (of the calls' clock). Raises NotWorthIt, SUMMARISER_ERRORS, LeaseLost, DatabaseUnavailable.
        """
        rest = messages
        while rest and self.calls.clock.monotonic() < until:
            taken = await self._first_success(partial(self._read_next, rest))
            rest = rest[taken:]
            if self.compaction.lease is None and (rest or more_follows):
                await self.merge()
            if more_follows and not await self._fills_segment(rest):
                return

    async def _first_success(self, attempt: Callable[[Summariser], Awaitable[T]]) -> T:
        """Return the result of the first summary model that succeeds, or of an extract if all texts were refused.

        The same request would be answered unusably again. A model that is down is asked again later instead, unless
        the prompt would leave the messages out until then.
        """
        try:
            return await self.calls.first_success(self.summarisers, attempt)
        except SUMMARISER_ERRORS as error:
            if any(one.is_extracting for one in self.summarisers):
                raise
            if not (isinstance(error, TextsRefused) or self._is_needed_now):
                raise
            try:
                return await attempt(await self._begin_extract(error.detail))
            except NotWorthIt:
                raise error from None

    @property
    def _is_needed_now(self) -> bool:
        """Whether a turn leaves messages out of its prompt that no summary covers."""
        if self.compaction.lease is None or self.reaches_further:
            return False
        view, summarised = self.compaction.plan.view, self.compaction.session.summary_through_position
        is_trimmed = view.state.trimmed_through_position > summarised
        return self.event.must_compact or is_trimmed or has_hidden_messages(view.context_input)

    async def _begin_extract(self, reason: str) -> Summariser:
        """Return the model that makes extracts; record why no other's text is used, and lift the calls' deadline.

        The compaction's own time limit holds nevertheless.
        """
        log.warning("summary text extracted", session_id=self.event.session_id, reason=reason)
        self.extract_reason, self.calls.deadline = reason, math.inf
        return await find_extracting(self.dependencies, self.compaction.agent)

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
        most = self.compaction.policy.chunk_messages
        is_many = most is not None and len(messages) > most
        return is_many or sum(message.token_count for message in messages) > await self.room_tokens()

    async def _room(self, summariser: Summariser) -> int:
        """Return the most tokens of a transcript in the model's window, by our count, as far as known so far."""
        most = await self.max_tokens(summariser)
        request = self.request((), summariser, most)
        room = summariser.transcript_tokens(request, most + summariser.keep_tokens)
        return min(self.rooms.get(summariser.key, room), room)

    async def _read_chunk(self, chunk: tuple[Message, ...], rest: tuple[Message, ...], summariser: Summariser) -> int:
        """Summarise the chunk, which is the beginning of `rest`, possibly shortened for the model.

        Facts are taken from the unshortened messages in `rest`.
        """
        if chunk[0].position != self.draft.through_position + 1:
            raise SummaryConflict("The messages to read do not follow the summarised messages.")
        is_rolling = self._is_rolling(summariser)
        existing, read = self.draft.text if is_rolling else "", rest[: len(chunk)]
        known = read_hash(existing, chunk, summariser.style_and_instructions, names_facts=summariser.keep_tokens > 0)
        segment = await self.stored.find(known)
        if segment is None:
            segment = await self._summarise(chunk, read, summariser, known)
        facts = await self._facts(without_recall_results(read), segment.kept_facts)
        kept = () if is_rolling else self.draft.segments
        replaced = sum(message.token_count for message in chunk)
        self.draft = await self._of_draft(partial(self.draft.extended, (*kept, segment), facts, replaced), facts)
        return len(chunk)

    async def _summarise(
        self, chunk: tuple[Message, ...], read: tuple[Message, ...], summariser: Summariser, known: str
    ) -> Segment:
        """Return a segment for the chunk, copied or written. `read` holds the same messages unshortened."""
        is_rolling = self._is_rolling(summariser)
        first = 1 if is_rolling else self.draft.through_position + 1
        reach, most = (first, chunk[-1].position), await self.max_tokens(summariser)
        replaced = sum(message.token_count for message in chunk)
        replaced += summariser.count(self.draft.text) if is_rolling and self.draft.text else 0
        asking = partial(self.request, chunk, summariser, most)
        prompt = await run_off_loop_if_large(characters_of(chunk), asking)
        asked = TextRequest(prompt, most, replaced, reach, keep_tokens=summariser.keep_tokens)
        return await self.stored.copied_or_written(
            summariser, asked, self.stored.new_segment(reach, chunk[-1].id, known), read
        )

    async def _facts(self, messages: Sequence[Message], named: Sequence[KeptFact] = ()) -> tuple[KeptFact, ...]:
        """Return the facts kept verbatim from `messages`: those that the model named, and those that rules find.

        Empty if the agent's policy wants the narrative alone.
        """
        if self.compaction.policy.kind is not SummaryKind.HYBRID:
            return ()
        finding = partial(facts_of, messages, named, self.draft.kept_facts)
        return await run_off_loop_if_large(characters_of(messages), finding, large=MANY_CHARACTERS)

    async def merge(self) -> None:
        """Merge neighbouring segments while there are too many; a failed merge is left for the next time.

        Raises LeaseLost, DatabaseUnavailable.
        """
        while (task := await self._merge_due()) is not None:
            (merged, level, _), segments = task, self.draft.segments
            parts = segments[merged]
            if parts == self.unmerged:
                return
            try:
                new = await self._first_success(partial(self._merge, task, parts))
            except (*SUMMARISER_ERRORS, NotWorthIt) as error:
                log.info("merge of summary segments postponed", error=error.code, level=level, **provider_words(error))
                self.unmerged = () if isinstance(error, ModelUnavailable) else parts
                return
            self.draft = replace(self.draft, segments=(*segments[: merged.start], new, *segments[merged.stop :]))

    async def _merge_due(self) -> MergeTask | None:
        """Return the next merge, None if none is due.

        A hook's texts may be as large as the whole narrative, and extracts stand beside the existing summary: both are
        merged in a rolling summary, too. A model's texts are made to fit.
        """
        segments, room = self.draft.segments, self.compaction.layout.narrative_tokens
        free = await self._free_tokens()
        due = None if self.compaction.is_rolling else merge_due(segments, room, free)
        if due is not None or not any(segment.model in {BY_HOOK, EXTRACTING_MODEL} for segment in segments):
            return due
        return merge_of_large(segments, free)

    async def _merge(self, task: MergeTask, parts: tuple[Segment, ...], summariser: Summariser) -> Segment:
        known = merge_hash(parts, summariser.style_and_instructions)
        found = await self.stored.find(known)
        if found is not None:
            return found
        _, level, most = task
        replaced, reach = sum(part.token_count for part in parts), (parts[0].from_position, parts[-1].through_position)
        asked = TextRequest(merge_request(parts, most, summariser.guidance), most, replaced, reach)
        new = self.stored.new_segment(reach, parts[-1].through_id, known, level)
        return await self.stored.copied_or_written(summariser, asked, new)

    async def choose_facts(self) -> None:
        """Let a model choose the most important kept facts if there is no room for all."""
        facts, room_tokens = self.draft.kept_facts, self.compaction.layout.fact_tokens(self.draft.kept_facts)
        chosen = await choose_facts(facts, room_tokens, self.summarisers, self.calls, self._choice)
        self.draft = replace(self.draft, kept_facts=chosen)

    async def _choice(self, summariser: Summariser, asked: TextRequest) -> str:
        """Return the answer to a request to choose facts of the draft.

        Raises the same as `StoredSegments.copied_or_written`.
        """
        last = self.draft.segments[-1]
        known = request_key(self.compaction.session.owner_id, summariser, asked, level=CHOICE_LEVEL)
        found = await self.stored.find(known)
        if found is None:
            new = self.stored.new_segment((1, last.through_position), last.through_id, known, CHOICE_LEVEL)
            found = await self.stored.copied_or_written(summariser, asked, new)
        return found.text

    @property
    def stored(self) -> StoredSegments:
        """The segments of the session, and of the owner's other sessions."""
        return StoredSegments(self.dependencies, self.compaction, self.calls)

    async def _free_tokens(self) -> int:
        """Return the tokens that the narrative may take besides the facts, computed once per draft."""
        draft = self.draft
        if self.measured[0] is not draft:
            measure = self.compaction.layout.free_narrative_tokens
            self.measured = draft, await self._of_draft(partial(measure, draft.kept_facts, draft.segments))
        return self.measured[1]

    def _is_rolling(self, summariser: Summariser) -> bool:
        """Return whether the model rewrites the existing summary together with the new messages."""
        return self.compaction.is_rolling and not summariser.is_substitute

    async def max_tokens(self, summariser: Summariser) -> int:
        """Return the most tokens of the next segment's text."""
        free = await self._free_tokens()
        if self._is_rolling(summariser):
            return min(free, self.compaction.layout.rolling_tokens)
        return segment_tokens(self.draft.segments, self.compaction.layout.narrative_tokens, free)

    def request(self, chunk: Sequence[Message], summariser: Summariser, max_tokens: int) -> Prompt:
        """Return the request for a text about the chunk, or for the rolling summary with it."""
        subjects = subjects_again(self.draft.kept_facts, chunk) if summariser.keep_tokens else None
        if self._is_rolling(summariser):
            return summary_request(self.draft.text, chunk, max_tokens, summariser.guidance, subjects)
        return segment_request(chunk, max_tokens, summariser.guidance, subjects)
