"""The interface to stored runs, messages, events and calibrations, for turns and summaries.

Each method is one transaction.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from throughline.context.calibration import Calibration
from throughline.domain.agent_graph import GraphState
from throughline.domain.basic_types import JsonObject, MemoryId, MessageId, RunId, SessionId, SummaryId, UserId
from throughline.domain.events import HistoryQuoted, MemoriesQuoted, NewEvent, RunEnded, RunEvent, RunWaiting
from throughline.domain.message import Message, NewMessage
from throughline.domain.recall import HistoryQuery, Memory, SearchResult
from throughline.domain.run import (
    ClaimedRuns,
    Claimer,
    Lease,
    LeaseRenewal,
    Outcome,
    RowLease,
    Run,
    RunError,
    RunStatus,
    Submission,
    Submitted,
)
from throughline.domain.session import Session
from throughline.domain.summary import (
    Adoption,
    Conversation,
    MeasuredMessages,
    NewSegment,
    ReadLimits,
    Segment,
    SummaryLease,
    SummaryState,
    SummaryVersion,
)
from throughline.domain.usage_report import DaySpending, ModelCall, Payer

# The interface to stored summaries, for turns, jobs and requests: segments, versions, the cursor, the view state.
#
# Each method is one transaction. `lease` is None if the caller is not a turn.


class SummaryStore(Protocol):
    """Segments and versions of a session's summary; every change of the cursor is a compare-and-set."""

    async def find_segment(self, session_id: SessionId, read_hash: str) -> Segment | None:
        """Return the segment made from the input with this hash, None if there is none."""

    async def save_segment(self, session_id: SessionId, segment: NewSegment, lease: Lease | None = None) -> Segment:
        """Store a segment; if one with the same `read_hash` exists, return it and write nothing.

        The cursor stays unchanged. Raises SummaryConflict if a message was redacted since it was read, LeaseLost,
        NotFound.
        """

    async def save_failure(self, session: Session, reason: str) -> Session:
        """Store why no summary could be written, until one is written; return the session with the reason."""

    async def usual_seconds(self, session_id: SessionId) -> float | None:
        """Return the average seconds that the session's newest segments took to write.

        None if no model has written one for this session.
        """

    async def chain_of_segments(self, session_id: SessionId, first: int, before: int) -> tuple[Segment, ...]:
        """Return consecutive stored segments from position `first`, all ending before `before`.

        If several segments could follow, the longest is taken.
        """

    async def copy_segment(
        self, session_id: SessionId, wanted: NewSegment, lease: Lease | None = None
    ) -> Segment | None:
        """Copy the segment that answers the same request from another session of the same owner, and return the copy.

        Return None if there is none. Sessions of other owners are never read. Raises LeaseLost, SummaryConflict,
        NotFound.
        """

    async def load_parts(
        self, session_id: SessionId, state: SummaryState
    ) -> tuple[SummaryVersion, tuple[Segment, ...]] | None:
        """Return the adopted version, or the prepared one that builds on it, with its segments.

        `state` says which of the two; None if the session has no such version.
        """

    async def adopt_summary(self, adoption: Adoption, lease: Lease | None = None) -> Session:
        """Store a version and move the session's cursor to it, by compare-and-set on `expected_version`.

        The cursor only moves forward. Prepared versions of an older base are discarded in the same transaction. Raises
        SummaryConflict, and LeaseLost if the given lease is lost.
        """

    async def prepare_summary(self, adoption: Adoption) -> SummaryVersion:
        """Store a version as prepared, replacing an earlier prepared one; the adopted summary is unchanged.

        Raises SummaryConflict if the session's version is not `expected_version` or a prepared version covers as much.
        """

    async def adopt_prepared(
        self, session_id: SessionId, summary_id: SummaryId, expected_version: int, lease: Lease | None = None
    ) -> Session:
        """Adopt the prepared version, by compare-and-set on `expected_version`. Raises SummaryConflict, LeaseLost."""

    async def save_view(
        self, session_id: SessionId, view_state: JsonObject, expected_version: int, lease: Lease | None = None
    ) -> bool:
        """Store the view state after the compaction stages; return False, unstored, if the summary changed meanwhile.

        Raises LeaseLost if the given lease is lost.
        """

    async def save_skipped(self, session_id: SessionId, through_position: int, expected_version: int) -> None:
        """Record in the view state that a summary through this position was not worth writing.

        The rest of the view state is unchanged. Nothing is written if the summary changed meanwhile.
        """

    async def ask_for_next(self, session_id: SessionId) -> None:
        """Queue the job that prepares the session's next summary if one is due when the job runs."""

    async def check_lease_free(self, session_id: SessionId) -> None:
        """Raise SummaryInProgress if a summary on demand of the session is being written."""

    async def take_lease(self, session_id: SessionId, seconds: float) -> SummaryLease:
        """Take the session's lease for a summary on demand, for `seconds`. Raises SummaryInProgress, NotFound."""

    async def renew_leases(
        self, leases: Collection[SummaryLease], seconds: float
    ) -> Mapping[SummaryLease, LeaseRenewal]:
        """Extend the leases to `seconds` from now; the result lacks leases that others have taken."""

    async def release_lease(self, lease: SummaryLease) -> None:
        """End the lease, so that another process can summarise the session. No error if the lease is lost."""

    async def latest(self, session_id: SessionId) -> SummaryVersion | None:
        """Return the adopted version, None if the session has no summary."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The last event number and the status that a waiting reader has seen of its run."""

    run_id: RunId
    seq: int
    status: RunStatus


class RunWaiter(Protocol):
    """The subscription of one reader to one run."""

    def after(self, seq: int) -> tuple[RunEvent, ...]:
        """Take the events that this process delivered since the last call; empty unless they follow `seq` directly.

        If empty, the reader reads the events from the database.
        """
        ...

    async def wait_beyond(self, seen: Seen, timeout_seconds: float) -> bool:
        """Wait until the run has changed beyond what was `seen`; False if `timeout_seconds` passed first."""
        ...


class FollowedRuns(Protocol):
    """Access to runs for their readers. No database connection is held between two calls."""

    def follow(self, run_id: RunId, *, ends_only: bool = False) -> AbstractAsyncContextManager[RunWaiter]:
        """Yield a waiter that is woken for new events, or with `ends_only` only if the run may have ended."""
        ...

    async def reload(self, run: Run) -> Run:
        """Return the current state of the run, even if its owner has changed. Raises NotFound if it was erased."""
        ...

    async def read_events(self, run_id: RunId, after_seq: int, limit: int = 500) -> tuple[RunEvent, ...]:
        """Return up to `limit` stored events after event number `after_seq`, in order; few readers read at once."""
        ...

    async def replay(self, run: Run) -> tuple[RunEvent, ...]:
        """Return an ended or waiting run's events, reconstructed from its messages: `reset`, messages, end or wait."""
        ...

    async def ending(self, run: Run) -> RunEnded | RunWaiting:
        """Return the last event of an ended or waiting run, made from its stored rows."""
        ...

    async def find_waiting(self, run: Run) -> Run | None:
        """Return the waiting run of the session behind which the queued `run` stands in line; None without one."""
        ...

    async def has_running_worker(self) -> bool:
        """Whether any worker holds an unexpired lease on any run."""
        ...


class History(Protocol):
    """The stored message history. A missing session and another user's session raise the same NotFound."""

    async def search(self, owner_id: UserId, session_id: SessionId | None, query: HistoryQuery) -> SearchResult:
        """Return the best matches in the session, or in all the owner's sessions if `session_id` is None.

        Raises NotFound.
        """

    async def read(self, owner_id: UserId, session_id: SessionId, first: int, last: int) -> tuple[Message, ...]:
        """Return the messages at positions `first` to `last`, oldest first, at most one page of them.

        Raises NotFound.
        """


class TurnHistory(History, Protocol):
    """The message history as a turn searches it, too."""

    async def search_before_turn(
        self, owner_id: UserId, session_id: SessionId, queries: Sequence[HistoryQuery]
    ) -> tuple[SearchResult, ...]:
        """Return the result of each query, which `is_before_turn`, in the session; an empty one if its search fails."""


class Memories(Protocol):
    """The memories of users, for turns and tools. A missing memory and another user's raise the same NotFound."""

    async def find_fitting(self, user_id: UserId, message: str, limit: int) -> tuple[Memory, ...]:
        """Return up to `limit` memories of the user that fit the message, best first; empty if none fits well."""

    async def create(self, user_id: UserId, text: str, metadata: JsonObject) -> Memory:
        """Store a memory of the user and return it."""

    async def delete(self, user_id: UserId, memory_id: MemoryId) -> None:
        """Delete the user's memory with this id. Raises NotFound."""

    async def delete_text(self, user_id: UserId, text: str) -> int:
        """Delete the user's memories with exactly this text; return how many there were."""


CheckRoom: TypeAlias = Callable[[int], None]
"""A check that gets the total tokens of the session's other pins, and raises if the new pins would not fit."""


@dataclass(frozen=True, slots=True)
class PinGroup:
    """Messages that are pinned together: a model's message with tool calls and their results, ordered by position.

    `missing_results` counts the group's calls without a stored result. `is_orphan`: the message is a tool result
    without a call, or of a call that already has a result.
    """

    messages: tuple[Message, ...]
    missing_results: int = 0
    is_orphan: bool = False


class PinStore(Protocol):
    """Storage of pins. Messages and sessions of other owners raise NotFound."""

    async def find_group(self, owner_id: UserId, session_id: SessionId, message_id: MessageId) -> PinGroup:
        """Return the messages that are pinned together with this one. Raises NotFound."""

    async def pin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...], check: CheckRoom
    ) -> tuple[Message, ...]:
        """Pin the messages and return them by position; already pinned messages stay pinned.

        `check` runs under a lock, so no other pin can be added in the session between it and the write. If it raises,
        nothing is pinned and its error is passed on. Raises NotFound.
        """

    async def unpin(
        self, owner_id: UserId, session_id: SessionId, message_ids: tuple[MessageId, ...]
    ) -> tuple[Message, ...]:
        """Unpin the messages and return them by position; messages without a pin are unchanged. Raises NotFound."""


class UsageStore(Protocol):
    """Storage of the model calls that are not stored together with a step or the end of a turn."""

    async def store_calls(self, payer: Payer, calls: Sequence[ModelCall]) -> None:
        """Store the calls in one statement; nothing happens without calls."""

    async def spent_today(self, owner_id: UserId, agent: str, run_id: RunId | None = None) -> DaySpending:
        """Return what the user's calls of the agent, summaries included, have used since midnight UTC.

        The running turns are those that were claimed before the run `run_id`; all of them without it.
        """


class RunStore(Protocol):
    """Storage of runs, from submission to their end. Each method is one transaction."""

    async def submit(self, submission: Submission, claimer: Claimer | None) -> Submitted:
        """Store the run with its idempotency key; claim it for `claimer` if no earlier run has to go first.

        Raises NotFound (session), IdempotencyKeyReused, SessionBusy (on_busy=reject), QueueFull.
        """

    async def claim(self, claimer: Claimer) -> ClaimedRuns:
        """Claim up to `claimer.most` runs: those with an expired lease, then queued ones, fairly between owners."""

    async def renew(self, leases: Collection[RowLease], lease_seconds: float) -> Mapping[RowLease, LeaseRenewal]:
        """Extend the leases in one statement, by the database's clock; the result lacks leases that are lost."""

    async def find_stopped(self, run_ids: Collection[RunId]) -> frozenset[RunId]:
        """Return those of the running runs that must stop: their cancel was requested, or they were erased."""

    async def finish(self, lease: Lease, outcome: Outcome, unstored: Sequence[NewEvent], next_seq: int) -> Run:
        """End the run in one transaction: answer, usage, status and the last events.

        The answer is stored as step `answer`, so it exists at most once. `unstored` are the turn's events that are not
        stored yet. The closing events follow them, numbered from `next_seq`. Wakes this process's claim loop if the
        owner may have another run that can start now. Raises LeaseLost.
        """

    async def fail(self, lease: Lease, error: RunError) -> None:
        """End the run as failed and store nothing else: no answer, no event, no user text. Raises LeaseLost.

        For runs whose end `finish` cannot store. Readers are notified of the end.
        """

    async def give_back(self, lease: Lease, *, counts: bool = False) -> None:
        """Put the run back into the queue, for another worker to resume; no error if the lease is lost.

        With `counts` it counts as one of the run's limited attempts.
        """

    async def get_run(self, owner_id: UserId, run_id: RunId) -> Run:
        """Return the run. Raises NotFound if it is missing or another user's."""


class MessageStore(Protocol):
    """The message log of a session as turns use it. Each method is one transaction."""

    async def find_owner(self, session_id: SessionId) -> UserId:
        """Return the session's owner. Raises NotFound."""

    async def load_context(self, session_id: SessionId, run_id: RunId | None, max_tokens: int) -> Conversation:
        """Load the session and its newest messages after the summary's cursor, up to `max_tokens`, in one query.

        Pinned messages and those of the run `run_id` are loaded in any case. Raises NotFound.
        """

    async def get_messages_after(
        self, session_id: SessionId, after_message_id: MessageId | None, limit: int = 200
    ) -> tuple[Message, ...]:
        """Return up to `limit` messages after the given one, oldest first.

        With None, or an id that the session does not have, they are the first messages.
        """

    async def measure(self, session_id: SessionId, first: int, last: int, limits: ReadLimits) -> MeasuredMessages:
        """Return number, tokens and first position of the newest messages that a summary can read within the limits.

        Only the positions from `first` to `last` are considered. Long tool outputs are measured as shortened.
        """

    def new_message_id(self) -> MessageId:
        """Return an id for a message that readers are shown before it is stored."""

    async def append_message(
        self, lease: Lease, step: str, message: NewMessage, calls: Sequence[ModelCall] = ()
    ) -> Message:
        """Append `message` to the session of the lease's run, as the run's message `step`, and return it.

        It is stored under `message.id`, or under a new id if that is None.
        If (run, step) is already stored, return that message and write nothing. `calls` are the model calls that the
        message cost; they are stored with it. A recall tool's result is stored as an error if a message it quotes from
        another session was redacted or erased meanwhile. Raises LeaseLost.
        """

    async def append_graph_step(
        self, lease: Lease, messages: Sequence[tuple[str, NewMessage]], state: JsonObject, calls: Sequence[ModelCall]
    ) -> tuple[Message, ...]:
        """Append a step's messages, each with its name in the run, and store the graph's state, in one transaction.

        `calls` are stored with them. Raises LeaseLost.
        """

    async def load_graph_state(self, session_id: SessionId) -> GraphState | None:
        """Return the state that the session's graph stored last, None if there is none."""


class EventStore(Protocol):
    """Run events: written by the run's lease holder, read by users who may read the run."""

    async def append_events(self, lease: Lease, events: Sequence[NewEvent]) -> None:
        """Store a batch of events and notify readers. Raises LeaseLost, and then writes nothing."""

    async def newest_quoted(self, session_id: SessionId) -> tuple[HistoryQuoted | None, MemoriesQuoted | None]:
        """Return what the prompt of the session's newest turn quoted, messages and memories.

        Each is None if nothing was quoted, or if the turn's events are deleted.

        The newest turn is that of the newest message.
        """


class CalibrationStore(Protocol):
    """Storage of calibrations: how each model's own token count differs from the service's."""

    async def load(self, model: str) -> Calibration | None:
        """Return the model's calibration, None if the model was never called."""

    async def save(self, model: str, calibration: Calibration) -> None:
        """Store the model's calibration; the last writer wins."""
