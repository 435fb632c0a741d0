"""A session's summary as it grows, compaction after compaction, written by the service's own `StretchWriter`.

Not exercised: the database, what is prepared ahead, hooks, time limits and a second summary model.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast
from uuid import UUID

from benchmarks.planted_conversation import BEGIN, SESSION
from benchmarks.planted_store import KeptSummaries
from benchmarks.planted_summariser import LossySummariser
from throughline.context.measure import Count
from throughline.context.policy import SummaryKind, SummaryPolicy, SummaryShape
from throughline.context.summaries.ledger_text import FACTS_HEADING, INSTRUCTIONS_HEADING
from throughline.domain.ids import UserId
from throughline.domain.message import Message, Source
from throughline.domain.session import Session
from throughline.execution.breaker import Breakers
from throughline.ports.summaries import SummaryStore
from throughline.summary.draft import Assignment, Draft, open_draft
from throughline.summary.stretches import StretchWriter
from throughline.summary.summariser import NotWorthIt, Summariser, SummaryRejected
from throughline.summary.summariser_calls import SummariserCalls
from throughline.summary.unsummarised import Batch
from throughline.system_clock import SystemClock
from throughline.telemetry import PrometheusMetrics

_LEDGER = re.compile(
    rf"^(?:{re.escape(INSTRUCTIONS_HEADING)}|{re.escape(FACTS_HEADING)}|\(\d+ standing instructions? left out\))",
    re.MULTILINE,
)
"""What a ledger begins with. In a narrative no line can begin so: it would be shown as a quotation."""


class Variant(StrEnum):
    """How a session is summarised: the two shapes with a ledger, and the default shape without one."""

    ROLLING = "rolling"
    TIERED = "tiered"
    LLM = "llm"

    @property
    def policy(self) -> SummaryPolicy:
        """The agent's setting."""
        shape = SummaryShape.ROLLING if self is Variant.ROLLING else SummaryShape.TIERED
        return SummaryPolicy(shape=shape, kind=SummaryKind.LLM if self is Variant.LLM else SummaryKind.HYBRID)


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
            await writer.read(Batch(self.waiting))
        except (NotWorthIt, SummaryRejected):
            pass
        else:
            await writer.merge()
        if writer.reaches_further:
            self.draft = writer.draft
            await self.store.adopt_summary(writer.adoption())
        self.waiting = tuple(row for row in self.waiting if row.position > self.draft.through_position)

    @property
    def cursor(self) -> int:
        """How many messages the summary stands for."""
        return self.store.session.summary_through_position

    @property
    def unused_calls(self) -> int:
        """How many of the summariser's texts were not accepted."""
        return self.summariser.calls - len(self.store.stretches)

    def rendered(self) -> str:
        """Return the whole summary as a prompt shows it."""
        return self.store.session.conversation_summary

    def narrative(self) -> str:
        """Return the part of it that the model wrote."""
        return self._split()[0]

    def ledger_text(self) -> str:
        """Return the part of it that no model wrote."""
        return self._split()[1]

    def _split(self) -> tuple[str, str]:
        text = self.rendered()
        found = _LEDGER.search(text)
        return (text, "") if found is None else (text[: found.start()], text[found.start() :])

    async def _open_writer(self) -> StretchWriter:
        session, policy, store = self.store.session, self.variant.policy, cast("SummaryStore", self.store)
        clock, metrics = SystemClock(), PrometheusMetrics()
        summariser = Summariser(
            model=self.summariser,
            policy=policy,
            count=self.count,
            max_tokens=self.limit_tokens,
            window_tokens=self.summariser.context_limit,
            factor=1.0,
        )
        return StretchWriter(
            summaries=store,
            assignment=Assignment(session, policy, self.limit_tokens),
            summarisers=(summariser,),
            calls=SummariserCalls(clock, metrics, Breakers(clock), str(session.id), math.inf),
            draft=await open_draft(store, session, self.count, lease=None, extends_prepared=False),
        )


def _empty_session() -> Session:
    return Session(
        id=SESSION,
        owner_id=UserId(UUID(int=2)),
        agent="planted",
        title="",
        source=Source.API,
        created_at=BEGIN,
        updated_at=BEGIN,
    )
