"""Compaction: has a further summary written, or takes the prepared one, and moves the session's cursor once.

`compact` is asked before a model call and on demand; `prepare` writes ahead with the same `Writing`.
"""

import asyncio
import math
from dataclasses import dataclass, field, replace

import structlog

from throughline.context.decide_compaction import CompactionAction
from throughline.context.plan import ContextPlan
from throughline.context.summaries.ledger import merge_ledgers
from throughline.context.triggers import CompactionTrigger
from throughline.domain.compaction import CompactionOutcome, CompactionResult
from throughline.domain.conversation import Conversation
from throughline.domain.errors import SettingInvalid, SummaryConflict, ThroughlineError
from throughline.domain.ledger import LedgerEntry
from throughline.domain.message import Message, NewMessage
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.hooks import Decision, PreCompact
from throughline.prompting.conversation import with_summary
from throughline.prompting.planning import plan_context_for
from throughline.prompting.ready_agent import ReadyAgent
from throughline.summary.ask_hook import ask_hook
from throughline.summary.draft import open_draft
from throughline.summary.parts import SummaryParts
from throughline.summary.stretches import Assignment, StretchWriter
from throughline.summary.summariser import NotWorthIt, find_summarisers, summary_tokens
from throughline.summary.summariser_calls import SUMMARISER_ERRORS, SummariserCalls
from throughline.summary.unsummarised import Unsummarised

NOTHING_TO_READ = "All that is left belongs to the newest messages: a call and its results stay together."
CHANGED_MEANWHILE = "The session's summary was changed meanwhile, by another turn or on demand."
NOT_WRITTEN = "The summary could not be written."
CANCELLED_BY_HOOK = "The agent's pre_compact hook cancelled it."
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What is to be compacted, for whom. `lease` is None where no turn asks (on demand, or ahead).

    `seconds_left` is what may be spent now, None for the policy's time limit.
    """

    agent: ReadyAgent
    conversation: Conversation
    pending: NewMessage | None = None
    lease: Lease | None = None
    instructions: str = ""
    seconds_left: float | None = None

    @property
    def limit_seconds(self) -> float:
        """What may be spent now."""
        usual = self.agent.definition.context.summary.timeout_seconds
        return usual if self.seconds_left is None else self.seconds_left


async def compact(parts: SummaryParts, task: Compaction, plan: ContextPlan) -> CompactionResult:
    """Summarise what the plan names, or adopt what is prepared, within the policy's time limit.

    What was achieved until something failed is adopted, as one version. Never raises for a summariser that fails, is
    slow or writes nonsense: the cursor then stays where it was. LeaseLost and DatabaseUnavailable are let through.
    """
    started = parts.clock.monotonic()
    done = await (_adopt_prepared if plan.decision.action is CompactionAction.ADOPT else _write_and_adopt)(
        parts, task, plan
    )
    parts.metrics.compaction_finished(
        cause=plan.decision.trigger or "none",
        outcome=done.outcome,
        seconds=parts.clock.monotonic() - started,
        tokens_freed=max(done.tokens_before - done.tokens_after, 0),
    )
    log.info(
        "compaction finished",
        session_id=str(task.conversation.session.id),
        cause=plan.decision.trigger,
        outcome=done.outcome,
        detail=done.detail,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        through_position=done.session.summary_through_position,
    )
    return done


@dataclass(slots=True)
class Writing:
    """A summary being written for `task` within its time limit. `writer` holds what is achieved, also after a failure.

    `extends_prepared`: it begins with what is prepared, not with what is adopted. After `round_seconds` nothing further
    is read; what is read by then is whole.
    """

    parts: SummaryParts
    task: Compaction
    plan: ContextPlan
    event: PreCompact
    extends_prepared: bool
    round_seconds: float = math.inf
    writer: StretchWriter | None = None
    calls: SummariserCalls = field(init=False)

    def __post_init__(self) -> None:
        """The limit counts from here."""
        parts = self.parts
        self.calls = SummariserCalls(
            clock=parts.clock,
            metrics=parts.metrics,
            breakers=parts.breakers,
            session_id=self._session_id,
            deadline=parts.clock.monotonic() + self.task.limit_seconds,
        )

    async def run(self) -> CompactionResult:
        """Write until all is read, the time is up or something fails. Raises LeaseLost, DatabaseUnavailable.

        A model's adapter or a counter may fail in any way; no turn does for it.
        """
        with ErrorBoundary(log.error, "summary broke", lets_through=(ThroughlineError,), session_id=self._session_id):
            return await self._run()
        return self._ended(CompactionOutcome.FAILED, NOT_WRITTEN)

    @property
    def rest_seconds(self) -> float:
        """How long none of the models can be asked: what is left of the shortest rest, 0 where one may be asked now."""
        summarisers = () if self.writer is None else self.writer.summarisers
        return min((self.calls.rest_seconds(one) for one in summarisers), default=0.0)

    async def _run(self) -> CompactionResult:
        try:
            async with asyncio.timeout(self.task.limit_seconds):
                return await self._write()
        except TimeoutError:
            self.calls.timed_out()
            return self._ended(
                CompactionOutcome.FAILED, f"The time for it, {self.task.limit_seconds:.3g} seconds, was up."
            )
        except NotWorthIt as error:
            return self._ended(CompactionOutcome.SKIPPED, error.detail)
        except SummaryConflict:
            return _changed_meanwhile(self.task, self.plan)
        except (*SUMMARISER_ERRORS, SettingInvalid) as error:
            log.warning("summary failed", session_id=self._session_id, error=error.code)
            return self._ended(CompactionOutcome.FAILED, error.detail)

    async def _write(self) -> CompactionResult:
        decision = await _ask(self.parts, self.task, self.event)
        if decision.cancel:
            return self._ended(CompactionOutcome.CANCELLED, CANCELLED_BY_HOOK)
        self.writer = writer = await self._open_writer(decision)
        if not (decision.summary and await self._take(writer, decision.summary)):
            await self._read(writer)
        await writer.merge()
        return self._ended(CompactionOutcome.SKIPPED, NOTHING_TO_READ)

    async def _read(self, writer: StretchWriter) -> None:
        unsummarised = self._unsummarised()
        until = self.parts.clock.monotonic() + self.round_seconds
        while self.parts.clock.monotonic() < until:
            batch = await unsummarised.next_batch(writer.session(), writer.room_tokens)
            if not batch.messages:
                return
            await writer.read(batch, until=until)

    async def _open_writer(self, decision: Decision) -> StretchWriter:
        task, policy = self.task, self.task.agent.definition.context.summary
        session, count = task.conversation.session, task.agent.counter.count
        wishes = "\n".join(part for part in (task.instructions, decision.instructions) if part)
        draft = await open_draft(
            self.parts.summaries, session, count, lease=task.lease, extends_prepared=self.extends_prepared
        )
        return StretchWriter(
            summaries=self.parts.summaries,
            assignment=Assignment(session, policy, summary_tokens(task.agent), task.lease),
            summarisers=await find_summarisers(self.parts, task.agent, wishes),
            calls=self.calls,
            draft=draft,
        )

    async def _take(self, writer: StretchWriter, text: str) -> bool:
        """Use the hook's text for all that is to be read; the ledger is ours nevertheless."""
        before = session = writer.session()
        unsummarised, replaced = self._unsummarised(), 0
        facts: tuple[LedgerEntry, ...] = ()
        while batch := (await unsummarised.next_batch(session, writer.room_tokens)).messages:
            replaced += sum(message.token_count for message in batch)
            facts = merge_ledgers(facts, await writer.facts(batch))
            session = _reaching(session, batch[-1])
        if session is not before and await writer.take(text, session, facts, replaced):
            return True
        log.warning("pre_compact hook's summary cannot be used", session_id=self._session_id)
        return False

    def _ended(self, outcome: CompactionOutcome, detail: str) -> CompactionResult:
        return _unchanged(self.task, self.plan, outcome, detail)

    def _unsummarised(self) -> Unsummarised:
        task = self.task
        return Unsummarised(self.parts.messages, task.agent, task.conversation, task.pending, self.plan)

    @property
    def _session_id(self) -> str:
        return str(self.task.conversation.session.id)


def hook_event(task: Compaction, plan: ContextPlan, *, extends_prepared: bool = False) -> PreCompact:
    """Return what the agent's hook is told; cancelling is no choice where the prompt would not fit otherwise."""
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


async def _ask(parts: SummaryParts, task: Compaction, event: PreCompact) -> Decision:
    name = task.agent.definition.context.pre_compact
    decision = await ask_hook(parts, name, event, limit_seconds=task.limit_seconds)
    return replace(decision, cancel=decision.cancel and not event.must_compact)


async def _adopt_prepared(parts: SummaryParts, task: Compaction, plan: ContextPlan) -> CompactionResult:
    """Adopt what is written already. The hook may cancel; its wishes were asked for when that was written."""
    session, prepared = task.conversation.session, task.conversation.prepared
    if prepared is None:
        raise AssertionError("a plan adopts a prepared summary that the conversation does not have")
    decision = await _ask(parts, task, hook_event(task, plan))
    if decision.cancel:
        return _unchanged(task, plan, CompactionOutcome.CANCELLED, CANCELLED_BY_HOOK)
    try:
        adopted = await parts.summaries.adopt_prepared(session.id, prepared.id, session.summary_version, task.lease)
    except SummaryConflict:
        return _changed_meanwhile(task, plan)
    return await _adopted(task, plan, adopted, "")


async def _write_and_adopt(parts: SummaryParts, task: Compaction, plan: ContextPlan) -> CompactionResult:
    extends_prepared = _extends_prepared(task, plan)
    event = hook_event(task, plan, extends_prepared=extends_prepared)
    writing = Writing(parts, task, plan, event, extends_prepared=extends_prepared)
    ended = await writing.run()
    writer = writing.writer
    if writer is None or not writer.reaches_further:
        return ended
    try:
        session = await parts.summaries.adopt_summary(writer.adoption(), task.lease)
    except SummaryConflict:
        writing.calls.wasted("conflict")
        return _changed_meanwhile(task, plan)
    except ValueError as error:  # stretches that do not follow each other: no turn fails for a summary
        log.error("summary broke", session_id=event.session_id, error=type(error).__name__)
        return _unchanged(task, plan, CompactionOutcome.FAILED, NOT_WRITTEN)
    return await _adopted(task, plan, session, _what_is_left(ended, writer.draft.through_position, event))


def _what_is_left(ended: CompactionResult, reached: int, event: PreCompact) -> str:
    """Say how far a summary got that something stopped; nothing where it got as far as it was to."""
    if ended.outcome is not CompactionOutcome.FAILED or reached >= event.through_position:
        return ""
    return f"It reaches #{reached}; up to #{event.through_position} is left for the next one. {ended.detail}"


def _extends_prepared(task: Compaction, plan: ContextPlan) -> bool:
    """What is prepared is read no second time, unless the user has wishes that it was written without."""
    prepared = task.conversation.prepared
    if prepared is None or task.instructions:
        return False
    return prepared.through_position < (plan.decision.through_position or 0)


def _through_position(task: Compaction, plan: ContextPlan) -> int:
    prepared = task.conversation.prepared
    if plan.decision.action is CompactionAction.ADOPT and prepared is not None:
        return prepared.through_position
    return plan.decision.through_position or 0


def _reaching(session: Session, last: Message) -> Session:
    return replace(session, summary_through_id=last.id, summary_through_position=last.position)


def _unchanged(task: Compaction, plan: ContextPlan, outcome: CompactionOutcome, detail: str) -> CompactionResult:
    return CompactionResult(outcome, task.conversation.session, detail, plan.tokens, plan.tokens)


def _changed_meanwhile(task: Compaction, plan: ContextPlan) -> CompactionResult:
    return replace(_unchanged(task, plan, CompactionOutcome.SKIPPED, CHANGED_MEANWHILE), is_stale=True)


async def _adopted(task: Compaction, plan: ContextPlan, session: Session, detail: str) -> CompactionResult:
    conversation = with_summary(task.conversation, session)
    after = await plan_context_for(task.agent, conversation, task.pending)
    return CompactionResult(CompactionOutcome.ADOPTED, session, detail, plan.tokens, after.tokens)
