"""Writes one summary for a compaction: calls the agent's hook, reads batch by batch, keeps the time limit."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from throughline.context.compaction.compaction_triggers import CompactionTrigger
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.plan_context import ContextPlan, backlog
from throughline.context.summaries.kept_facts import merge_kept_facts
from throughline.domain.errors import SettingInvalid, SummaryConflict, ThroughlineError, provider_words
from throughline.domain.message import ImageBlock, Message, NewMessage, clean_text
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import CompactionOutcome, CompactionResult, Conversation, KeptFact
from throughline.domain.usage_report import Payer
from throughline.execution.call_plugin import PluginCall
from throughline.execution.compute_threads import characters_of
from throughline.execution.error_boundary import ErrorBoundary, Raised
from throughline.ports.hooks import Decision, PreCompact
from throughline.ports.storage import MessageStore
from throughline.turn.prompting.planning import ModelCall, plan_call, with_summary
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.find_summarisers import find_summarisers, summary_tokens
from throughline.turn.summary.summariser import NotWorthIt
from throughline.turn.summary.summariser_calls import FAIR_SHARE, SUMMARISER_ERRORS, SummariserCalls
from throughline.turn.summary.summary_draft import Assignment, Draft, open_draft
from throughline.turn.summary.write_segments import Batch, SegmentWriter, without_recall_results

PAGE_MESSAGES = 20
"""Size of the first page, small because a message may be megabytes; it doubles while pages are short."""

MOST_PAGE_MESSAGES = 640
SHORT_PAGE_CHARACTERS = 200_000

BATCH_CHARACTERS = 8_000_000
"""Most characters kept in memory for one batch, even if the summary model could read more."""


@dataclass(slots=True)
class Unsummarised:
    """Reader of the messages that `plan` wants summarised. `pending` is the user's message while it is not stored.

    `is_reread`: the messages were summarised before, and the plan does not change.
    """

    messages: MessageStore
    agent: ReadyAgent
    conversation: Conversation
    pending: NewMessage | None
    plan: ContextPlan
    is_reread: bool = False

    async def next_batch(self, session: Session, room_tokens: int) -> Batch:
        """Return the messages after the cursor of `session`, which already includes all earlier batches.

        The batch fills `room_tokens`, by our count, if there are enough messages. It is empty at the end. Raises
        DatabaseUnavailable.
        """
        has_read = session.summary_through_position > self._position
        if self.plan.decision.must_load_first and has_read and not self.is_reread:
            there = with_summary(self.conversation, session)
            call = ModelCall(self.agent, self.pending)
            self.plan = await plan_call(call, there, forced=self.plan.decision.trigger)
        if self.plan.decision.must_load_first:
            return await self._read_backlog(session, room_tokens)
        return Batch(
            tuple(row for row in self.plan.decision.to_summarise if row.position > session.summary_through_position)
        )

    @property
    def _position(self) -> int:
        return self.conversation.session.summary_through_position

    async def _read_backlog(self, session: Session, room_tokens: int) -> Batch:
        """Read messages after the cursor until they exceed `room_tokens` or BATCH_CHARACTERS.

        The batch ends with a whole group; the rest is read again for the next one.
        """
        rows: list[Message] = []
        tokens = characters = 0
        after, limit = session.summary_through_id, PAGE_MESSAGES
        while True:
            page = await self.messages.get_messages_after(session.id, after, limit=limit)
            rows += page
            tokens += sum(row.token_count for row in page)
            of_page = _characters_held(page)
            characters += of_page
            is_all = len(page) < limit or page[-1].position >= (self.plan.decision.through_position or math.inf)
            if is_all or tokens > room_tokens or characters >= BATCH_CHARACTERS:
                behind = backlog(rows, self.plan.decision.through_position)
                if behind or is_all:
                    return Batch(behind, more_follows=not is_all)
            after = page[-1].id
            limit = _next_limit(limit, of_page)


def _characters_held(messages: Sequence[Message]) -> int:
    """Return the characters in memory, images included, of which summary models see only a placeholder."""
    blocks = (block for message in messages if not isinstance(message.content, str) for block in message.content)
    return characters_of(messages) + sum(len(block.url) for block in blocks if isinstance(block, ImageBlock))


def _next_limit(limit: int, characters: int) -> int:
    return min(2 * limit, MOST_PAGE_MESSAGES) if characters <= SHORT_PAGE_CHARACTERS else PAGE_MESSAGES


HOOK_SECONDS = 5.0
SHARE_OF_LIMIT = 0.5
"""Share of a compaction's time limit that a hook may use; the summary itself needs the rest."""

GO_ON = Decision()


async def ask_hook(
    dependencies: SummaryDependencies, name: str, event: PreCompact, *, limit_seconds: float
) -> Decision:
    """Return the decision of the hook `name`; to go on, if it gives none within its share of `limit_seconds`.

    It has at most HOOK_SECONDS. After several failures in a row the hook is not called until a cool-down is over. While
    earlier calls of it still hang, it is not called either.
    """
    key = f"pre_compact:{name}"
    if not name or _is_hanging(dependencies, name) or not dependencies.breakers.acquire(key):
        return GO_ON
    try:
        decision = await _ask_in_time(dependencies, name, event, min(HOOK_SECONDS, SHARE_OF_LIMIT * limit_seconds))
    except asyncio.CancelledError:
        dependencies.breakers.released(key)
        raise
    except (_HookFailedError, SettingInvalid) as error:
        dependencies.breakers.failed(key)
        kind = str(error) if isinstance(error, _HookFailedError) else "SettingInvalid"
        log.warning("pre_compact hook failed", hook=name, error=kind)
        return GO_ON
    dependencies.breakers.succeeded(key)
    return decision


class _HookFailedError(Exception):
    """Raised if the hook gave no valid decision.

    The text names the class of the hook's error or says what is wrong with its answer. It never has the hook's own
    message.
    """


def _is_hanging(dependencies: SummaryDependencies, name: str) -> bool:
    dependencies.hanging_hooks[name] = [call for call in dependencies.hanging_hooks.get(name, ()) if call.is_hanging]
    if not dependencies.hanging_hooks[name]:
        return False
    log.warning("pre_compact hook skipped", hook=name)
    return True


async def _ask_in_time(dependencies: SummaryDependencies, name: str, event: PreCompact, seconds: float) -> Decision:
    call = PluginCall(partial(dependencies.hooks.get(name), event), _check_decision)
    try:
        outcome = await call.outcome(seconds)
    finally:
        if call.is_hanging:
            dependencies.hanging_hooks[name].append(call)
    if isinstance(outcome, Raised):
        is_answer = isinstance(outcome.error, _HookFailedError)
        raise _HookFailedError(str(outcome.error) if is_answer else type(outcome.error).__name__)
    return outcome.value


def _check_decision(answer: object) -> Decision:
    """Return the decision with cleaned texts; None means to go on. The types of all fields are checked."""
    if answer is None:
        return GO_ON
    if not isinstance(answer, Decision):
        raise _HookFailedError(f"answered {type(answer).__name__}")
    cancel, instructions, summary = _answered_fields(answer)
    if not isinstance(cancel, bool):
        raise _HookFailedError("answered a Decision whose cancel is no bool")
    if not isinstance(instructions, str) or not isinstance(summary, str):
        raise _HookFailedError("answered a Decision whose texts are none")
    return Decision(cancel, clean_text(instructions), clean_text(summary))


def _answered_fields(answer: Decision) -> tuple[object, object, object]:
    return answer.cancel, answer.instructions, answer.summary


NOTHING_TO_READ = "The remaining messages are the newest ones, and a call and its results stay together."
CHANGED_MEANWHILE = "Another turn or request has changed the session's summary."
NOT_WRITTEN = "The summary could not be written."
CANCELLED_BY_HOOK = "The agent's pre_compact hook cancelled it."
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Compaction:
    """The conversation to compact, and its limits. `lease` is None outside turns (on demand, or in the background).

    `seconds_left` is the remaining time, None for the policy's time limit. If summarised messages are read again, the
    text begins with `beginning`, and is useful only if it reaches `must_reach`, the old cursor.
    """

    agent: ReadyAgent
    conversation: Conversation
    pending: NewMessage | None = None
    lease: Lease | None = None
    instructions: str = ""
    seconds_left: float | None = None
    beginning: Draft | None = None
    must_reach: int = 0

    @property
    def limit_seconds(self) -> float:
        """The seconds that this compaction may take."""
        usual = self.agent.definition.context.summary.timeout_seconds
        return usual if self.seconds_left is None else self.seconds_left

    @property
    def is_in_turn(self) -> bool:
        """Whether a turn waits for the compaction, or it has a turn's time limit."""
        return self.lease is not None or self.seconds_left is None


@dataclass(slots=True)
class SummaryWriting:
    """A summary being written for `task` within its time limit. `writer` holds the finished part, also after a failure.

    `extends_prepared`: it begins with the prepared summary, not with the adopted one. After `round_seconds` no further
    messages are read; the segments read by then are complete.
    """

    dependencies: SummaryDependencies
    task: Compaction
    plan: ContextPlan
    event: PreCompact
    extends_prepared: bool
    round_seconds: float = math.inf
    writer: SegmentWriter | None = None
    calls: SummariserCalls = field(init=False)

    def __post_init__(self) -> None:
        """Start the time limit."""
        dependencies, usual = self.dependencies, self.task.agent.definition.context.summary.timeout_seconds
        self.calls = SummariserCalls(
            clock=dependencies.clock,
            metrics=dependencies.metrics,
            breakers=dependencies.breakers,
            paces=dependencies.paces,
            session_id=self._session_id,
            deadline=dependencies.clock.monotonic() + self.task.limit_seconds,
            least_seconds_of_model=FAIR_SHARE * max(usual, self.task.limit_seconds),
            is_in_turn=self.task.is_in_turn,
        )

    async def run(self) -> CompactionResult:
        """Write until all is read, the time is up or something fails; return why it ended.

        The finished part is in `writer`. Any error of a model's adapter or a counter becomes a failed result, so that
        no turn fails because of it. Raises LeaseLost, DatabaseUnavailable.
        """
        try:
            with ErrorBoundary(
                log.error, task="summary", lets_through=(ThroughlineError,), session_id=self._session_id
            ):
                return await self._write_within_time()
            return self._result(CompactionOutcome.FAILED, NOT_WRITTEN)
        finally:
            await self._store_calls()

    @property
    def rest_seconds(self) -> float:
        """Seconds until the first of the summary models may be called again; 0 if one may be called now."""
        summarisers = () if self.writer is None else self.writer.summarisers
        return min((self.calls.rest_seconds(one) for one in summarisers), default=0.0)

    async def _store_calls(self) -> None:
        """Store what the model calls used, also those of unusable answers; if that fails, it is only logged."""
        session, lease = self.task.conversation.session, self.task.lease
        run_id = None if lease is None else lease.run_id
        payer = Payer(session.owner_id, session.id, run_id, self.task.agent.definition.name)
        with ErrorBoundary(log.warning, "model calls not stored", session_id=self._session_id):
            await self.dependencies.usage.store_calls(payer, self.calls.answered)

    async def _write_within_time(self) -> CompactionResult:
        try:
            async with asyncio.timeout(self.task.limit_seconds):
                return await self._write_all()
        except TimeoutError:
            self.calls.timed_out()
            return self._result(
                CompactionOutcome.FAILED, f"The time for it, {self.task.limit_seconds:.3g} seconds, was up."
            )
        except NotWorthIt as error:
            return self._result(CompactionOutcome.SKIPPED, error.detail)
        except SummaryConflict:
            return changed_meanwhile(self.task, self.plan)
        except (*SUMMARISER_ERRORS, SettingInvalid) as error:
            log.warning("summary failed", session_id=self._session_id, error=error.code, **provider_words(error))
            return self._result(CompactionOutcome.FAILED, error.detail)

    async def _write_all(self) -> CompactionResult:
        decision = await ask_pre_compact(self.dependencies, self.task, self.event)
        if decision.cancel:
            return self._result(CompactionOutcome.CANCELLED, CANCELLED_BY_HOOK)
        self.writer = writer = await self.open_writer(decision)
        if not (decision.summary and await self._take_hook_text(writer, decision.summary)):
            await self._read_batches(writer)
        await writer.merge()
        if not self.task.is_in_turn:
            await writer.choose_facts()
        return self._result(CompactionOutcome.SKIPPED, NOTHING_TO_READ)

    async def _read_batches(self, writer: SegmentWriter) -> None:
        unsummarised = self._unsummarised()
        until = self.dependencies.clock.monotonic() + self.round_seconds
        while self.dependencies.clock.monotonic() < until:
            batch = await unsummarised.next_batch(await writer.session(), await writer.room_tokens())
            if not batch.messages:
                return
            await writer.read(batch, until=until)

    async def open_writer(self, decision: Decision) -> SegmentWriter:
        """Return the writer, with the instructions of the session, the request and the hook.

        Raises SummaryConflict, and SummaryRejected for instructions that no summary model has room for.
        """
        task, policy = self.task, self.task.agent.definition.context.summary
        session, count = task.conversation.session, task.agent.counter.count
        instructions = "\n".join(
            part for part in (session.summary_instructions, task.instructions, decision.instructions) if part
        )
        draft = task.beginning or await open_draft(
            self.dependencies.summaries, session, count, lease=task.lease, extends_prepared=self.extends_prepared
        )
        return SegmentWriter(
            summaries=self.dependencies.summaries,
            assignment=Assignment(
                session, policy, summary_tokens(task.agent), task.lease, is_rewriting=task.beginning is not None
            ),
            summarisers=await find_summarisers(self.dependencies, task.agent, instructions),
            calls=self.calls,
            draft=draft,
        )

    async def _take_hook_text(self, writer: SegmentWriter, text: str) -> bool:
        """Use the hook's text for all messages to be read; facts are kept nevertheless.

        Return False if there is no message to read, or the text fails the checks.
        """
        before = session = await writer.session()
        unsummarised, replaced = self._unsummarised(), 0
        facts: tuple[KeptFact, ...] = ()
        while batch := (await unsummarised.next_batch(session, await writer.room_tokens())).messages:
            replaced += sum(message.token_count for message in batch)
            facts = merge_kept_facts(facts, await writer.facts(without_recall_results(batch)))
            session = _reaching(session, batch[-1])
        if session is not before and await writer.take(text, session, facts, replaced):
            return True
        log.warning("summary text of pre_compact hook rejected", session_id=self._session_id)
        return False

    def _result(self, outcome: CompactionOutcome, detail: str) -> CompactionResult:
        return unchanged(self.task, self.plan, outcome, detail)

    def _unsummarised(self) -> Unsummarised:
        task = self.task
        is_reread = task.beginning is not None
        return Unsummarised(
            self.dependencies.messages, task.agent, task.conversation, task.pending, self.plan, is_reread
        )

    @property
    def _session_id(self) -> str:
        return str(self.task.conversation.session.id)


def hook_event(task: Compaction, plan: ContextPlan, *, extends_prepared: bool = False) -> PreCompact:
    """Return the event for the agent's hook; `must_compact` says that the prompt would not fit without a compaction."""
    agent, session, prepared = task.agent, task.conversation.session, task.conversation.prepared
    reached, through = session.summary_through_position, _through_position(task, plan)
    if extends_prepared and prepared is not None:
        reached = prepared.through_position
    return PreCompact(
        trigger="manual" if plan.decision.trigger is CompactionTrigger.MANUAL else "auto",
        agent=agent.definition.name,
        session_id=str(session.id),
        tokens=plan.tokens,
        target_tokens=agent.budget.target_tokens,
        message_count=max(through - reached, 0),
        from_position=reached + 1,
        through_position=through,
        instructions=task.instructions,
        must_compact=plan.tokens > agent.budget.budget_tokens,
    )


async def ask_pre_compact(dependencies: SummaryDependencies, task: Compaction, event: PreCompact) -> Decision:
    """Return the decision of the agent's hook; it cannot cancel if the prompt would not fit otherwise."""
    name = task.agent.definition.context.pre_compact
    decision = await ask_hook(dependencies, name, event, limit_seconds=task.limit_seconds)
    return replace(decision, cancel=decision.cancel and not event.must_compact)


def _through_position(task: Compaction, plan: ContextPlan) -> int:
    prepared = task.conversation.prepared
    if plan.decision.action is CompactionAction.ADOPT and prepared is not None:
        return prepared.through_position
    return plan.decision.through_position or 0


def _reaching(session: Session, last: Message) -> Session:
    return replace(session, summary_through_id=last.id, summary_through_position=last.position)


def unchanged(task: Compaction, plan: ContextPlan, outcome: CompactionOutcome, detail: str = "") -> CompactionResult:
    """Return the result of a compaction that left the session as it was."""
    return CompactionResult(outcome, task.conversation.session, detail, plan.tokens, plan.tokens)


def changed_meanwhile(task: Compaction, plan: ContextPlan) -> CompactionResult:
    """Return the result of a compaction that was dropped because something else changed the summary first.

    That is another turn, a side job, or a request on demand.
    """
    return replace(unchanged(task, plan, CompactionOutcome.SKIPPED, CHANGED_MEANWHILE), is_stale=True)
