"""Compaction: has a further summary written, or takes the prepared one, and moves the session's cursor once.

`compact` is asked before a model call and on demand; `prepare` writes ahead with the same `Writing`.
"""

import asyncio
import math
from dataclasses import dataclass, field, replace

import structlog

from throughline.context.plan import ContextPlan
from throughline.context.summaries.ledger import merge_ledgers
from throughline.context.triggers import Cause
from throughline.domain.conversation import Conversation
from throughline.domain.errors import SettingInvalid, SummaryConflict, ThroughlineError
from throughline.domain.ledger import LedgerEntry
from throughline.domain.message import Message, NewMessage
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.execution.error_boundary import ErrorBoundary
from throughline.ports.hooks import Decision, PreCompact
from throughline.prompting.conversation import with_summary
from throughline.prompting.planning import context_input, plan_off_loop
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


@dataclass(frozen=True, slots=True)
class Compacted:
    """How it ended: `adopted`, `skipped` (not worth it, or another was first), `failed` or `cancelled` (by the hook).

    `conversation` is the one to go on with. `is_stale`: the stored session is no longer what it says; load it again.
    """

    conversation: Conversation
    outcome: str
    detail: str
    tokens_before: int
    tokens_after: int
    is_stale: bool = False

    @property
    def is_not_worth_it(self) -> bool:
        """Whether a summary would have been no smaller than what it replaces: it is tried again after more growth."""
        return self.outcome == "skipped" and not self.is_stale


@dataclass(frozen=True, slots=True)
class Ended:
    """How the writing of a summary ended: the outcome if nothing was achieved, and why no more was."""

    outcome: str
    detail: str
    is_stale: bool = False

    @property
    def is_not_worth_it(self) -> bool:
        """Whether a summary would have been no smaller than what it replaces."""
        return self.outcome == "skipped" and not self.is_stale


async def compact(parts: SummaryParts, task: Compaction, plan: ContextPlan) -> Compacted:
    """Summarise what the plan names, or adopt what is prepared, within the policy's time limit.

    What was achieved until something failed is adopted, as one version. Never raises for a summariser that fails, is
    slow or writes nonsense: the cursor then stays where it was. LeaseLost and DatabaseUnavailable are let through.
    """
    started = parts.clock.monotonic()
    done = await (_adopt_prepared if plan.adopts_prepared else _write_and_adopt)(parts, task, plan)
    parts.metrics.compaction_finished(
        cause=plan.cause or "none",
        outcome=done.outcome,
        seconds=parts.clock.monotonic() - started,
        tokens_freed=max(done.tokens_before - done.tokens_after, 0),
    )
    log.info(
        "compaction finished",
        session_id=str(task.conversation.session.id),
        cause=plan.cause,
        outcome=done.outcome,
        detail=done.detail,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        through_position=done.conversation.session.summary_through_position,
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

    async def run(self) -> Ended:
        """Write until all is read, the time is up or something fails. Raises LeaseLost, DatabaseUnavailable.

        A model's adapter or a counter may fail in any way; no turn does for it.
        """
        with ErrorBoundary(log.error, "summary broke", lets_through=(ThroughlineError,), session_id=self._session_id):
            return await self._run()
        return Ended("failed", "The summary could not be written.")

    @property
    def rest_seconds(self) -> float:
        """How long none of the models can be asked: what is left of the shortest rest, 0 where one may be asked now."""
        summarisers = () if self.writer is None else self.writer.summarisers
        return min((self.calls.rest_seconds(one) for one in summarisers), default=0.0)

    async def _run(self) -> Ended:
        try:
            async with asyncio.timeout(self.task.limit_seconds):
                return await self._write()
        except TimeoutError:
            self.calls.timed_out()
            return Ended("failed", f"The time for it, {self.task.limit_seconds:.3g} seconds, was up.")
        except NotWorthIt as error:
            return Ended("skipped", error.detail)
        except SummaryConflict:
            return Ended("skipped", CHANGED_MEANWHILE, is_stale=True)
        except (*SUMMARISER_ERRORS, SettingInvalid) as error:
            log.warning("summary failed", session_id=self._session_id, error=error.code)
            return Ended("failed", error.detail)

    async def _write(self) -> Ended:
        decision = await _ask(self.parts, self.task, self.event)
        if decision.cancel:
            return Ended("cancelled", CANCELLED_BY_HOOK)
        self.writer = writer = await self._open_writer(decision)
        if not (decision.summary and await self._take(writer, decision.summary)):
            await self._read(writer)
        await writer.merge()
        return Ended("skipped", NOTHING_TO_READ)

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
        trigger="manual" if plan.cause is Cause.MANUAL else "auto",
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


async def _adopt_prepared(parts: SummaryParts, task: Compaction, plan: ContextPlan) -> Compacted:
    """Adopt what is written already. The hook may cancel; its wishes were asked for when that was written."""
    session, prepared = task.conversation.session, task.conversation.prepared
    if prepared is None:
        raise AssertionError("a plan adopts a prepared summary that the conversation does not have")
    decision = await _ask(parts, task, hook_event(task, plan))
    if decision.cancel:
        return _unchanged(task, plan, Ended("cancelled", CANCELLED_BY_HOOK))
    try:
        adopted = await parts.summaries.adopt_prepared(session.id, prepared.id, session.summary_version, task.lease)
    except SummaryConflict:
        return _unchanged(task, plan, Ended("skipped", CHANGED_MEANWHILE, is_stale=True))
    return await _adopted(task, plan, adopted, "")


async def _write_and_adopt(parts: SummaryParts, task: Compaction, plan: ContextPlan) -> Compacted:
    extends_prepared = _extends_prepared(task, plan)
    event = hook_event(task, plan, extends_prepared=extends_prepared)
    writing = Writing(parts, task, plan, event, extends_prepared=extends_prepared)
    ended = await writing.run()
    writer = writing.writer
    if writer is None or not writer.reaches_further:
        return _unchanged(task, plan, ended)
    try:
        session = await parts.summaries.adopt_summary(writer.adoption(), task.lease)
    except SummaryConflict:
        writing.calls.wasted("conflict")
        return _unchanged(task, plan, Ended("skipped", CHANGED_MEANWHILE, is_stale=True))
    except ValueError as error:  # stretches that do not follow each other: no turn fails for a summary
        log.error("summary broke", session_id=event.session_id, error=type(error).__name__)
        return _unchanged(task, plan, Ended("failed", "The summary could not be written."))
    return await _adopted(task, plan, session, _what_is_left(ended, writer.draft.through_position, event))


def _what_is_left(ended: Ended, reached: int, event: PreCompact) -> str:
    """Say how far a summary got that something stopped; nothing where it got as far as it was to."""
    if ended.outcome != "failed" or reached >= event.through_position:
        return ""
    return f"It reaches #{reached}; up to #{event.through_position} is left for the next one. {ended.detail}"


def _extends_prepared(task: Compaction, plan: ContextPlan) -> bool:
    """What is prepared is read no second time, unless the user has wishes that it was written without."""
    prepared = task.conversation.prepared
    if prepared is None or task.instructions:
        return False
    return prepared.through_position < (plan.through_position or 0)


def _through_position(task: Compaction, plan: ContextPlan) -> int:
    prepared = task.conversation.prepared
    if plan.adopts_prepared and prepared is not None:
        return prepared.through_position
    return plan.through_position or 0


def _reaching(session: Session, last: Message) -> Session:
    return replace(session, summary_through_id=last.id, summary_through_position=last.position)


def _unchanged(task: Compaction, plan: ContextPlan, ended: Ended) -> Compacted:
    return Compacted(task.conversation, ended.outcome, ended.detail, plan.tokens, plan.tokens, ended.is_stale)


async def _adopted(task: Compaction, plan: ContextPlan, session: Session, detail: str) -> Compacted:
    conversation = with_summary(task.conversation, session)
    plan_after = await plan_off_loop(context_input(task.agent, conversation, task.pending))
    return Compacted(conversation, "adopted", detail, plan.tokens, plan_after.tokens)
