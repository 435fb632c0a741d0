"""The state of one turn: what the nodes hand to each other, and what surrounds them (`Turn`)."""

from dataclasses import dataclass, field
from typing import TypeVar

from throughline.context.decide_compaction import CompactionAllowance
from throughline.domain.conversation import Conversation
from throughline.domain.message import NewMessage, Source
from throughline.domain.prompt import MAX_ANSWER_BYTES, Usage
from throughline.domain.run import ClaimedRun, Lease
from throughline.ports.storage import EventStore, RunStore
from throughline.prompting.ready_agent import ReadyAgent
from throughline.summary.dependencies import SummaryDependencies
from throughline.turn.event_writer import EventWriter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnState:
    """What flows through the graph. Each node fills its part and returns it; nothing is changed in place.

    `agent` and `user` are set by process_message, `conversation` by retrieve_context, `answer` by llm_node; `stages`
    names all that was done to make room in this turn.
    """

    claimed: ClaimedRun
    agent: ReadyAgent | None = None
    user: NewMessage | None = None
    conversation: Conversation | None = None
    answer: NewMessage | None = None
    usage: Usage = field(default_factory=Usage)
    stages: tuple[str, ...] = ()


def present(value: T | None) -> T:
    """Return a part of the state that an earlier node has set; the graph's order guarantees it."""
    if value is None:
        raise AssertionError("the graph ran a node before the one that sets its input")
    return value


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """Limits of a turn. `deadline_seconds` bounds all model calls of a turn together, retries included.

    `max_answer_bytes` goes into each ModelRequest. Of a step's calls the first `max_calls_per_step` run, and their
    results have `max_step_result_bytes` together; what is beyond gets an error result. Each of them bounds what one
    step makes the process hold and the database store.
    """

    deadline_seconds: float = 300.0
    max_attempts: int = 3
    max_parallel_tools: int = 8
    max_answer_bytes: int = MAX_ANSWER_BYTES
    max_calls_per_step: int = 128
    max_step_result_bytes: int = 10_000_000
    token_counter: str = "tiktoken"  # noqa: S105  # a counter of tokens, no secret


@dataclass(frozen=True, slots=True)
class TurnDependencies(SummaryDependencies):
    """What every turn of this process shares; `assembly/` puts it together."""

    runs: RunStore
    events: EventStore
    config: TurnConfig


@dataclass(slots=True)
class CompactionUsage:
    """What this turn has spent on summaries: its compactions share one time limit, and none follows a failed one.

    `is_cancelled`: the hook cancelled one, and is asked again only where the prompt would not fit otherwise.
    `is_requested`: a summary in the background was requested.
    """

    seconds: float = 0.0
    has_failed: bool = False
    is_cancelled: bool = False
    is_requested: bool = False

    def seconds_left(self, agent: ReadyAgent) -> float:
        """Return what the agent's time limit leaves for further summaries."""
        return max(agent.definition.context.summary.timeout_seconds - self.seconds, 0)

    def allowance(self, agent: ReadyAgent) -> CompactionAllowance:
        """Return what the turn may still do about summaries."""
        may_write = not self.has_failed and self.seconds_left(agent) > 0
        return CompactionAllowance(may_write=may_write, is_cancelled=self.is_cancelled)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn under way: the shared dependencies, its event writer and its deadline (of `clock.monotonic`)."""

    dependencies: TurnDependencies
    lease: Lease
    events: EventWriter
    deadline: float
    attempt: int
    source: Source
    compaction_usage: CompactionUsage = field(default_factory=CompactionUsage)
