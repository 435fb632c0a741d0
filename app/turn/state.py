"""The state of one turn: what the nodes hand to each other, and what surrounds them (`Turn`)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.agents.definition import AgentDefinition
from app.agents.registry import AgentRegistry
from app.context.budget import Budget
from app.domain.clock import Clock
from app.domain.message import Message, NewMessage, Source
from app.domain.prompt import ToolSpec, Usage
from app.domain.run import ClaimedRun, Lease
from app.domain.session import Session
from app.domain.summary import Prepared
from app.turn.breaker import Breakers
from app.turn.events import EventWriter
from app.turn.ports import (
    MAX_ANSWER_BYTES,
    CalibrationStore,
    ChatModel,
    EventStore,
    MessageStore,
    Metrics,
    Models,
    RunStore,
    TokenCounter,
    Tools,
)
from app.turn.pre_compact import Hooks
from app.turn.summary_store import SummaryStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadyAgent:
    """An agent ready for a turn: its definition, model, tools and counter, fixed for the whole turn.

    `factor` is what our counts are multiplied by before they are held against the window; it changes within a turn
    only when the provider says that a prompt was too long.
    """

    definition: AgentDefinition
    model: ChatModel
    counter: TokenCounter
    tools: tuple[ToolSpec, ...]
    tools_tokens: int
    budget: Budget
    factor: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """The session as this turn sees it: `history` from other runs after the cursor, `own` from this run.

    `pinned` are pinned messages that are in neither; `prepared` is a summary waiting to be used.
    `resumed_calls` are the tool calls that a dead process left without a result: whether they ran is unknown.
    """

    session: Session
    history: tuple[Message, ...] = ()
    own: tuple[Message, ...] = ()
    pinned: tuple[Message, ...] = ()
    prepared: Prepared | None = None
    resumed_calls: frozenset[str] = frozenset()

    def with_own(self, *messages: Message) -> "Conversation":
        """Return the conversation with further rows of this run."""
        return replace(self, own=(*self.own, *messages))


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
class TurnParts:
    """What every turn of this process shares; `assembly/` puts it together."""

    runs: RunStore
    messages: MessageStore
    events: EventStore
    models: Models
    tools: Tools
    agents: AgentRegistry
    calibrations: CalibrationStore
    summaries: SummaryStore
    breakers: Breakers
    hooks: Hooks
    metrics: Metrics
    clock: Clock
    make_counter: Callable[[str], TokenCounter]
    config: TurnConfig


@dataclass(slots=True)
class Waited:
    """What this turn has spent on summaries: its compactions share one time limit, and none follows a failed one.

    `is_cancelled`: the hook forbade one; it is asked again only where the prompt would not fit otherwise.
    """

    seconds: float = 0.0
    has_failed: bool = False
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn under way: the shared parts, its event writer and its deadline (of `clock.monotonic`)."""

    parts: TurnParts
    lease: Lease
    events: EventWriter
    deadline: float
    attempt: int
    source: Source
    waited: Waited = field(default_factory=Waited)
