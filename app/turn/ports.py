"""What a turn needs from outside, as Protocols: storage, models, token counters, tools, metrics, a free worker slot."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app.context.calibration import Calibration
from app.domain.events import EventType, RunEvent
from app.domain.ids import MessageId, RunId, SessionId, UserId
from app.domain.json_types import JsonObject
from app.domain.message import Message, NewMessage, ToolCall
from app.domain.prompt import ModelEvent, Prompt, ToolSpec
from app.domain.run import ClaimedRun, Lease, Outcome, Run, RunError, Submission, Submitted
from app.domain.session import Session
from app.domain.summary import Prepared


@dataclass(frozen=True, slots=True)
class Claimer:
    """Who claims a run, and for how long before the lease must be renewed.

    `held` are runs it is at work on itself: their leases may have run out while the database was away.
    """

    worker: str
    lease_seconds: float
    held: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulse:
    """The answer to a heartbeat for a lease that is still ours.

    `is_renewed` is False where somebody had the row locked, so that the lease was not extended this time.
    """

    is_cancel_requested: bool
    is_renewed: bool = True


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A run event before it is stored, with its sequence number within the run."""

    seq: int
    type: EventType
    data: JsonObject


@dataclass(frozen=True, slots=True)
class LoadedContext:
    """What one query loads for a turn.

    `history` holds the newest messages after the cursor from other runs, oldest first, at most about `max_tokens`
    worth of them; `own` holds this run's rows, whatever their size. `is_complete` is False where rows after the
    cursor were left out because they were beyond `max_tokens`. `pinned` are the pinned messages of other runs that
    are in neither, oldest first: behind the cursor, or left out. `prepared` is the newest prepared summary that
    builds on the session's present version, None where there is none.
    """

    session: Session
    history: tuple[Message, ...]
    own: tuple[Message, ...]
    is_complete: bool
    pinned: tuple[Message, ...] = ()
    prepared: Prepared | None = None


ComposeEvents: TypeAlias = Callable[[Run, Message | None], Sequence[NewEvent]]


class RunStore(Protocol):
    """Runs: from submission to the end. One method is one transaction."""

    async def submit(self, submission: Submission, claimer: Claimer | None) -> Submitted:
        """Store the run with its idempotency key; claim it at once for `claimer` if it is first in line.

        Raises NotFound (session), IdempotencyKeyReused, SessionBusy (on_busy=reject), QueueFull.
        """
        ...

    async def claim_next(self, claimer: Claimer) -> ClaimedRun | None:
        """Take a run whose lease has expired, else one that is first in its session's line, by owners in turn."""
        ...

    async def renew(self, leases: Collection[Lease], lease_seconds: float) -> Mapping[Lease, Pulse]:
        """Extend these leases by the database's clock, in one statement; those no longer ours are not in the answer."""
        ...

    async def finish(self, lease: Lease, outcome: Outcome, compose: ComposeEvents) -> Run:
        """End the run: answer, usage, status and the last events in one transaction.

        The answer is stored under step `answer`, so that it exists at most once; `compose` is given the run and the
        answer as stored and returns the events to store with them. Raises LeaseLost.
        """
        ...

    async def fail(self, lease: Lease, error: RunError) -> None:
        """End the run as failed and store nothing else: no answer, no event, no text of the user's. Raises LeaseLost.

        For a run whose end cannot be stored as `finish` does it; its readers are told of the end as it is stored.
        """
        ...

    async def give_back(self, lease: Lease, *, counts: bool = False) -> None:
        """Put the run back into the line, for another worker to resume; no error if the lease is gone.

        `counts`: it was an attempt of its own, of which there are only so many.
        """
        ...

    async def get_run(self, owner_id: UserId, run_id: RunId) -> Run:
        """Return the run. Raises NotFound, also for somebody else's."""
        ...

    async def request_cancel(self, owner_id: UserId, run_id: RunId) -> Run:
        """Cancel a queued run at once, ask a running one to stop; a final one is returned as it is."""
        ...


class MessageStore(Protocol):
    """The message log and the session's summary, as a turn uses them. One method is one transaction."""

    async def load_context(self, session_id: SessionId, run_id: RunId | None, max_tokens: int) -> LoadedContext:
        """Load the session and its newest messages after `summary_through_id` in one query. Raises NotFound."""
        ...

    async def get_messages_after(
        self, session_id: SessionId, after_message_id: MessageId | None, limit: int = 200
    ) -> tuple[Message, ...]:
        """Return up to `limit` messages after the given one (None: from the first), oldest first."""
        ...

    async def append_message(self, lease: Lease, step: str, message: NewMessage) -> Message:
        """Append `message` under the lease; if (run, step) exists already, return that row and write nothing.

        Raises LeaseLost.
        """
        ...


class EventStore(Protocol):
    """Run events: written by the run's holder, read by anybody who may read the run."""

    async def append_events(self, lease: Lease, events: Sequence[NewEvent]) -> None:
        """Store a batch and wake readers. A lost lease writes nothing and raises LeaseLost."""
        ...

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        """Return the stored events after `after_seq`, in order."""
        ...


class CalibrationStore(Protocol):
    """What was learned of each model's own counting."""

    async def load(self, model: str) -> Calibration | None:
        """Return what is known of the model, None for a model never called."""
        ...

    async def save(self, model: str, calibration: Calibration) -> None:
        """Keep what was learned; the last writer wins."""
        ...


class TokenCounter(Protocol):
    """Counts tokens. `name` is stored beside each count."""

    @property
    def name(self) -> str:
        """The counter's name, for example `tiktoken:cl100k_base`."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`; special tokens in it are plain text."""
        ...


MAX_ANSWER_BYTES = 2_000_000
"""Some times what the longest answers have: 128,000 tokens."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `max_output_tokens` is the reserve; an empty `tools` sends none.

    `max_answer_bytes` is what a turn takes in of an answer (UTF-8; text, names and arguments of calls), whatever the
    provider makes of `max_output_tokens`: call_model counts the text, and a ChatModel the calls it puts together.

    `may_call_tools` is False for the last call of a turn that used up its tool rounds: the tools are then held back,
    or named but forbidden where the provider insists on seeing them beside earlier calls (Anthropic).
    """

    prompt: Prompt
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int
    may_call_tools: bool = True
    max_answer_bytes: int = MAX_ANSWER_BYTES


class ChatModel(Protocol):
    """One configured chat model."""

    @property
    def name(self) -> str:
        """The model's full name, for example `openai:gpt-4o`."""
        ...

    @property
    def calibration_key(self) -> str:
        """Under what its calibration is kept: the name, with the server's address where it has one of its own."""
        ...

    @property
    def context_limit(self) -> int:
        """The model's window in tokens, as its profile or our table knows it."""
        ...

    @property
    def has_known_tokenizer(self) -> bool:
        """Whether our counter is known to count much like this model's own."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Stream the answer: any number of TextDelta, then exactly one AnswerComplete.

        Raises the ModelRejected and ModelUnavailable families; never returns without AnswerComplete.
        """
        ...


class Models(Protocol):
    """Where chat models come from."""

    def get(self, model: str, base_url: str | None = None) -> ChatModel:
        """Return the model for an `init_chat_model` string or `offline`; '' is the setting `default_llm`.

        Raises SettingInvalid for an unknown provider, a missing package or a missing key.
        """
        ...


@dataclass(frozen=True, slots=True)
class ResultRoom:
    """How much a result may take of the prompt: `tokens`, as the agent's own counter counts them."""

    tokens: int
    count: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the call.

    `idempotency_key` is `run:tool_call_id`, stable across resumes. `may_recall_all`: recall tools may reach all
    sessions of the owner, not this one alone. A result larger than `room` is not shown whole; None: not known.
    """

    session_id: SessionId
    owner_id: UserId
    run_id: RunId
    idempotency_key: str
    may_recall_all: bool = False
    room: ResultRoom | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool's answer for the model; an error is an answer too."""

    text: str
    is_error: bool = False


class Tools(Protocol):
    """The tools agents may name."""

    def specs(self, names: Sequence[str]) -> tuple[ToolSpec, ...]:
        """Return the specs of the named tools. Raises SettingInvalid for an unknown name."""
        ...

    def is_repeatable(self, name: str) -> bool:
        """Whether the tool may be called again where its first outcome is unknown (True for unknown tools)."""
        ...

    async def run(self, call: ToolCall, context: ToolContext) -> ToolOutcome:
        """Run one call. Unknown tool, bad arguments, exceptions and slowness become error outcomes."""
        ...


class Metrics(Protocol):
    """What a turn reports of itself; no label ever holds user text."""

    def turn_finished(self, *, agent: str, status: str, seconds: float) -> None:
        """Count a finished turn."""
        ...

    def prompt_sent(self, *, model: str, tokens: int, window_tokens: int) -> None:
        """Record the size of a prompt by our own count."""
        ...

    def compaction_finished(self, *, cause: str, outcome: str, seconds: float, tokens_freed: int) -> None:
        """Count a compaction: outcome is `adopted`, `skipped` or `failed`."""
        ...

    def model_failed(self, *, model: str, error: str) -> None:
        """Count a failed model call by error code."""
        ...

    def compaction_measured(self, *, tokens_before: int, tokens_after: int) -> None:
        """Record the size of a prompt before and after room was made, in the model's tokens."""
        ...

    def rung_fired(self, *, rung: str) -> None:
        """Count a rung of the ladder (`pruned`, `oldest_trimmed`, …) that changed the view of a session."""
        ...

    def summary_written(self, *, model: str, input_tokens: int, output_tokens: int, seconds: float) -> None:
        """Record a summariser call that ended, whatever became of its text."""
        ...

    def summary_unused(self, *, model: str, tokens: int, reason: str) -> None:
        """Count summariser tokens (read and written) that were paid and never adopted."""
        ...

    def summary_failed(self, *, model: str, reason: str) -> None:
        """Count a summariser call that gave no usable text, by error code."""
        ...

    def estimate_compared(self, *, model: str, estimated: int, reported: int) -> None:
        """Record our estimate of a prompt beside the provider's count of it."""
        ...

    def overflow_met(self, *, model: str) -> None:
        """Count a prompt that the provider called too long."""
        ...


class Slots(Protocol):
    """Room for turns in this process, so that a door may claim in its submit transaction."""

    def reserve(self) -> Claimer | None:
        """Reserve a slot; None if none is idle or earlier runs may wait. Every one ends in `start` or `release`."""
        ...

    def start(self, claimed: ClaimedRun) -> None:
        """Run the claimed run in the reserved slot."""
        ...

    def release(self) -> None:
        """Give the reserved slot back unused."""
        ...
