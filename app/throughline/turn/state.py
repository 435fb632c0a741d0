"""State of one turn: `TurnState` is passed between the graph's nodes, `Turn` is what all of them share."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from throughline.agents.definition import AgentDefinition
from throughline.context.compaction.decide_compaction import CompactionAction
from throughline.context.plan_context import ContextPlan
from throughline.context.quoted_history import Quotation
from throughline.domain.message import NewMessage, Source
from throughline.domain.prompt import MAX_ANSWER_BYTES
from throughline.domain.recall import Memory
from throughline.domain.run import ClaimedRun, Lease
from throughline.domain.summary import Conversation
from throughline.domain.tool import AwaitedCall
from throughline.domain.usage_report import ModelCall
from throughline.ports.storage import EventStore, Memories, RunStore, TurnHistory
from throughline.turn.event_writer import EventWriter
from throughline.turn.prompting.ready_agent import ReadyAgent
from throughline.turn.summary.dependencies import SummaryDependencies

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnState:
    """State that LangGraph passes from node to node. Each node returns its new fields; nothing is changed in place.

    `definition` is the agent's, read once when the turn starts. process_message sets `agent` and `user`,
    retrieve_context sets `conversation`, llm_node sets `answer`. `stages` names every reduction of the context in this
    turn. `quotations` are earlier messages that the user's message asks for, `memories` the owner's that fit it.
    `correction` is what the model is told after an answer that does not fit the response format, `misfit` why the last
    answer does not fit either. tool_node sets `waiting`: the calls that wait for something from outside.
    """

    claimed: ClaimedRun
    definition: AgentDefinition
    agent: ReadyAgent | None = None
    user: NewMessage | None = None
    conversation: Conversation | None = None
    answer: NewMessage | None = None
    stages: tuple[str, ...] = ()
    quotations: tuple[Quotation, ...] = ()
    memories: tuple[Memory, ...] = ()
    correction: str = ""
    misfit: str = ""
    waiting: tuple[AwaitedCall, ...] = ()


def present(value: T | None) -> T:
    """Return a field of the state that an earlier node has set; the graph's order guarantees that it is set."""
    if value is None:
        raise AssertionError("the graph ran a node before the one that sets its input")
    return value


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """Limits of a turn.

    `deadline_seconds` limits all model calls of a turn together, retries included. `max_attempts` limits how often a
    run is begun, `max_parallel_tools` how many tools run at the same time. `max_answer_bytes` goes into each
    ModelRequest. Only the first `max_calls_per_step` tool calls of a step run; the others get an error result.
    `max_step_result_bytes` limits the results of a step together; a result over it is replaced by an error. These
    limits bound what one step keeps in memory and stores in the database. `token_counter` counts the text of an
    interrupted answer.
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
    """Dependencies that all turns of this process share; `assembly/` creates them."""

    runs: RunStore
    events: EventStore
    history: TurnHistory
    memories: Memories
    config: TurnConfig


@dataclass(slots=True)
class CompactionUsage:
    """What this turn has spent on summaries. They share one time limit, and none is written after one has failed.

    `is_cancelled`: the hook `pre_compact` cancelled a compaction; it is asked again only if the prompt would not fit
    otherwise. `is_requested`: a summary in the background was requested.
    """

    seconds: float = 0.0
    has_failed: bool = False
    is_cancelled: bool = False
    is_requested: bool = False

    def seconds_left(self, agent: ReadyAgent) -> float:
        """Return the seconds that the agent's time limit leaves for further summaries of this turn."""
        return max(agent.definition.context.summary.timeout_seconds - self.seconds, 0)

    def limited(self, plan: ContextPlan, agent: ReadyAgent) -> ContextPlan:
        """Return the plan, without a compaction that this turn may not make any more."""
        decision, fits = plan.decision, plan.tokens <= agent.budget.budget_tokens
        may_write = not self.has_failed and self.seconds_left(agent) > 0
        is_too_late = decision.action is CompactionAction.WRITE_NOW and not may_write
        if is_too_late or (decision.is_now and self.is_cancelled and fits):
            return replace(plan, decision=replace(decision, action=CompactionAction.NONE))
        return plan


@dataclass(slots=True)
class PaidCalls:
    """The paid model calls of this attempt, and those of them that are not stored yet."""

    made: list[ModelCall] = field(default_factory=list)
    unstored: list[ModelCall] = field(default_factory=list)

    def add(self, call: ModelCall) -> None:
        """Add a call that has just ended."""
        self.made.append(call)
        self.unstored.append(call)

    def take(self) -> tuple[ModelCall, ...]:
        """Return the calls that are not stored yet, which the caller stores.

        After a cancellation nobody knows whether they were stored: then none is stored twice.
        """
        calls = tuple(self.unstored)
        self.unstored.clear()
        return calls


@dataclass(slots=True)
class StepInStorage:
    """The step with tool calls whose storage has begun and has not ended; `message` is None if there is none.

    `step` names it within the run. `calls` are the model calls that are stored with it.
    """

    message: NewMessage | None = None
    step: str = ""
    calls: tuple[ModelCall, ...] = ()


@dataclass(slots=True)
class LastPrompt:
    """The prompt of the turn's last answered model call, for the log: its size, and the stages of the whole turn.

    `tokens` is its size as it was sent, `unreduced_tokens` that of the whole conversation since the summary; both None
    before the first call.
    """

    tokens: int | None = None
    unreduced_tokens: int | None = None
    window_tokens: int | None = None
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A running turn: shared dependencies, lease, event writer and deadline (a value of `clock.monotonic`)."""

    dependencies: TurnDependencies
    lease: Lease
    events: EventWriter
    deadline: float
    attempt: int
    source: Source
    compaction_usage: CompactionUsage = field(default_factory=CompactionUsage)
    last_prompt: LastPrompt = field(default_factory=LastPrompt)
    calls: PaidCalls = field(default_factory=PaidCalls)
    storing: StepInStorage = field(default_factory=StepInStorage)
