"""A session's summary as it grows, compaction after compaction, written by the service's own `SummaryWriter`.

Not exercised: the database, what is prepared ahead, hooks, time limits and a second summary model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from types import SimpleNamespace
from typing import cast
from uuid import UUID

from benchmarks.planted_conversation import BEGIN, SESSION
from benchmarks.planted_summariser import LossySummariser
from benchmarks.replay_data import Json
from throughline.agents.definition import AgentDefinition
from throughline.context.budget import make_budget
from throughline.context.calibration import scale, stepped
from throughline.context.fit_prompt import fit_prompt
from throughline.context.measure import Count
from throughline.context.plan_context import ContextPlan
from throughline.context.policy import ContextPolicy, SummaryKind, SummaryPolicy, SummaryShape
from throughline.context.summaries.check_summary import NotWorthIt, SummaryRejected
from throughline.context.view.context_input import ContextInput
from throughline.domain.basic_types import SegmentId, SessionId, SummaryId, UserId
from throughline.domain.errors import SummaryConflict
from throughline.domain.message import Message, NewMessage, Role, Source, text_of
from throughline.domain.run import Lease
from throughline.domain.session import Session
from throughline.domain.summary import (
    Adoption,
    Conversation,
    NewSegment,
    Segment,
    SummaryState,
    SummaryVersion,
)
from throughline.execution.breaker import Breakers
from throughline.llm.counters import PluginCounter
from throughline.llm.offline import OfflineModel
from throughline.ports.hooks import PreCompact
from throughline.ports.storage import SummaryStore
from throughline.system_clock import SystemClock
from throughline.telemetry import PrometheusMetrics
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.summary.compaction import Compaction, Draft, open_draft
from throughline.turn.summary.dependencies import SummaryDependencies
from throughline.turn.summary.summariser import EXTRACTING_MODEL, Summariser
from throughline.turn.summary.summariser_calls import SummariserCalls
from throughline.turn.summary.write_summary import SummaryWriter

_STORED = frozenset(field.name for field in fields(Segment)) - {"id"}
_VERSIONED = frozenset(field.name for field in fields(SummaryVersion))


class KeptSummaries:
    """As much of a SummaryStore as summaries need that are written when they are due, one after the other."""

    def __init__(self, session: Session) -> None:
        """Begin without a summary."""
        self.session = session
        self.segments: dict[str, Segment] = {}
        self._adopted: SummaryVersion | None = None

    async def find_segment(self, session_id: SessionId, read_hash: str) -> Segment | None:
        """Return the segment that was made from exactly this."""
        del session_id
        return self.segments.get(read_hash)

    async def save_segment(self, session_id: SessionId, segment: NewSegment, lease: Lease | None = None) -> Segment:
        """Keep a segment, as it is found again by its hash."""
        del session_id, lease
        stored = {name: getattr(segment, name) for name in _STORED}
        new = Segment(id=SegmentId(UUID(int=len(self.segments) + 1)), **stored)
        return self.segments.setdefault(segment.read_hash, new)

    async def copy_segment(
        self, session_id: SessionId, wanted: NewSegment, lease: Lease | None = None
    ) -> Segment | None:
        """There is no other session."""
        del session_id, wanted, lease
        return None  # the one answer of several that the protocol knows

    async def load_parts(
        self, session_id: SessionId, state: SummaryState
    ) -> tuple[SummaryVersion, tuple[Segment, ...]] | None:
        """Return the adopted version with its segments."""
        del session_id
        version = self._adopted
        if version is None or state is not SummaryState.ADOPTED:
            return None
        by_id = {segment.id: segment for segment in self.segments.values()}
        return version, tuple(by_id[known] for known in version.segment_ids)

    async def adopt_summary(self, adoption: Adoption, lease: Lease | None = None) -> Session:
        """Make it the session's summary."""
        del lease
        if adoption.expected_version != self.session.summary_version:
            raise SummaryConflict("The session's summary has been changed.")
        self.session = replace(
            self.session,
            conversation_summary=adoption.text,
            summary_tokens=adoption.token_count,
            summary_through_id=adoption.through_id,
            summary_through_position=adoption.through_position,
            summary_version=adoption.expected_version + 1,
        )
        self._adopted = _version(self.session, adoption)
        return self.session


def _version(session: Session, adoption: Adoption) -> SummaryVersion:
    """Take over whatever the version has of the adoption."""
    of_adoption: Json = {name: getattr(adoption, name) for name in _VERSIONED if hasattr(adoption, name)}
    made: Json = {"version": session.summary_version, "state": SummaryState.ADOPTED, "created_at": session.created_at}
    return SummaryVersion(id=SummaryId(UUID(int=session.summary_version)), **made, **of_adoption)


class Variant(Enum):
    """How a session is summarised: in both shapes, with facts kept beside the narrative (hybrid) and without (llm)."""

    ROLLING = SummaryPolicy(shape=SummaryShape.ROLLING, kind=SummaryKind.HYBRID)
    TIERED = SummaryPolicy(shape=SummaryShape.TIERED, kind=SummaryKind.HYBRID)
    ROLLING_LLM = SummaryPolicy(shape=SummaryShape.ROLLING, kind=SummaryKind.LLM)
    TIERED_LLM = SummaryPolicy(shape=SummaryShape.TIERED, kind=SummaryKind.LLM)


@dataclass(slots=True)
class Memory:
    """A session's summary. `waiting` are messages that no summary was worth yet: the next compaction reads them."""

    variant: Variant
    limit_tokens: int
    summariser: LossySummariser
    count: Count
    draft: Draft = field(default_factory=Draft)
    waiting: tuple[Message, ...] = ()
    store: KeptSummaries = field(default_factory=lambda: KeptSummaries(_empty_session()))

    async def compact(self, messages: Sequence[Message]) -> None:
        """Summarise `messages`, which follow what is summarised already, and adopt what is achieved."""
        writer = await self._open_writer()
        self.waiting = (*self.waiting, *messages)
        try:
            await writer.read(self.waiting)
        except (NotWorthIt, SummaryRejected):
            pass
        else:
            await writer.merge()
            await writer.choose_facts()
        if writer.reaches_further:
            self.draft = writer.draft
            await self.store.adopt_summary(await writer.adoption())
        self.waiting = tuple(row for row in self.waiting if row.position > self.draft.through_position)

    @property
    def cursor(self) -> int:
        """How many messages the summary stands for."""
        return self.store.session.summary_through_position

    def rendered(self) -> str:
        """Return the whole summary as a prompt shows it."""
        return self.store.session.conversation_summary

    def prompt_text(self, newer: tuple[Message, ...] = (), pinned: tuple[Message, ...] = ()) -> str:
        """Return all text of the prompt that the engine makes behind the cursor, with these messages in it."""
        policy, summary = ContextPolicy(), self.rendered()
        make_context_input = ContextInput(
            policy=policy,
            budget=make_budget(policy, self.summariser.context_limit),
            factor=1.0,
            system_prompt="You are a helpful assistant.",
            tools_tokens=0,
            summary=summary,
            summary_tokens=self.count(summary),
            summary_through_position=self.cursor,
            history=newer,
            own=(),
            user=NewMessage(Role.USER, "And now?", Source.API),
            count=self.count,
            counter_name="benchmark",
            pinned=pinned,
        )
        prompt = fit_prompt(make_context_input).prompt
        return "\n".join((prompt.system, *(text_of(message.content) for message in prompt.messages)))

    async def _open_writer(self) -> SummaryWriter:
        session, clock, metrics = self.store.session, SystemClock(), PrometheusMetrics()
        policy = replace(self.variant.value, max_tokens=scale(self.limit_tokens, stepped(1.0)))
        summariser = Summariser(
            model=self.summariser,
            policy=policy,
            count=self.count,
            max_tokens=self.limit_tokens,
            window_tokens=self.summariser.context_limit,
            factor=1.0,
        )
        context = ContextPolicy(summary=policy)
        agent = ReadyAgent(
            definition=AgentDefinition(session.agent, context=context),
            model=self.summariser,
            counter=PluginCounter("benchmark", self.count),
            tools=(),
            tools_tokens=0,
            budget=make_budget(context, 10 * self.limit_tokens),
            factor=1.0,
        )
        task = Compaction(agent, Conversation(session), cast("ContextPlan", None))
        extracting = {EXTRACTING_MODEL: OfflineModel()}
        of_refusals = {"models": extracting, "calibrations": SimpleNamespace(load=_no_calibration)}
        dependencies = cast("SummaryDependencies", SimpleNamespace(summaries=self.store, **of_refusals))
        event = cast("PreCompact", SimpleNamespace(session_id=str(session.id)))
        calls = SummariserCalls(clock, metrics, Breakers(clock), str(session.id), math.inf)
        writer = SummaryWriter(dependencies, task, event, calls, summarisers=(summariser,))
        writer.draft = await open_draft(cast("SummaryStore", self.store), task)
        return writer


async def _no_calibration(key: str) -> None:
    """Return None: nothing was learned about the model's counts."""
    del key


def _empty_session() -> Session:
    owner, at = UserId(UUID(int=2)), BEGIN
    return Session(
        id=SESSION, owner_id=owner, agent="planted", title="", source=Source.API, created_at=at, updated_at=at
    )
