"""What the service answers, as values. Unknown fields are ignored: the service may be newer than the command line."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from app.cli.failures import UnexpectedReply

Reply = TypeVar("Reply")
_ADAPTERS: dict[type[object], TypeAdapter[Any]] = {}  # built once per type: Any, since each has its own


@dataclass(frozen=True, slots=True)
class SessionReply:
    """A session."""

    id: str
    agent: str
    title: str | None = None
    source: str = ""
    message_count: int = 0
    summarized_count: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    archived: bool = False


@dataclass(frozen=True, slots=True)
class SummarizeReply:
    """What a forced summary came to: `outcome` is `adopted`, `skipped` or `failed`, `detail` says why."""

    outcome: str
    session: SessionReply
    detail: str = ""
    tokens_before: int = 0
    tokens_after: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallReply:
    """A call the model asked for."""

    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class MessageReply:
    """A stored message; content is text or a list of blocks."""

    position: int
    role: str
    content: str | list[dict[str, object]]
    id: str = ""
    pinned: bool = False
    tool_calls: tuple[ToolCallReply, ...] = ()
    name: str | None = None
    created_at: datetime | None = None

    @property
    def text(self) -> str:
        """The text of the message; an image is shown as its kind."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(block.get("text", f"[{block.get('type', 'block')}]")) for block in self.content)


@dataclass(frozen=True, slots=True)
class HitReply:
    """A found message; `highlights` are the places in the snippet that match."""

    message: MessageReply
    session_id: str = ""
    snippet: str = ""
    highlights: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryReply:
    """A short text that a user keeps."""

    id: str
    text: str
    metadata: dict[str, object] = field(default_factory=dict)
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class PageReply:
    """One page of a list, its items still JSON; `next_cursor` is None on the last page."""

    data: tuple[dict[str, object], ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """A summary, adopted or prepared."""

    messages_summarized: int = 0
    token_count: int = 0
    created_at: datetime | None = None
    through_position: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class VersionReply:
    """A version of a session's summary; one that is prepared has no number yet."""

    id: str
    state: str
    version: int | None = None
    stretches: int = 0
    token_count: int = 0
    through_position: int = 0
    model: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ToSummariseReply:
    """Messages that would be summarised first."""

    from_position: int
    through_position: int
    message_count: int


@dataclass(frozen=True, slots=True)
class PreviewedReply:
    """How one message would be shown."""

    position: int
    role: str
    form: str
    reason: str = ""
    tokens: int = 0
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class PreviewReply:
    """The plan for one model call."""

    action: str
    tokens: int
    window: int
    cause: str | None = None
    fired: tuple[str, ...] = ()
    threshold_tokens: int = 0
    budget_tokens: int = 0
    floor_too_high: bool = False
    summarised_through: int = 0
    summarise: ToSummariseReply | None = None
    messages: tuple[PreviewedReply, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextReply:
    """How full a session's window is, and what the next message will do to it."""

    agent: str
    model: str
    context_window: int
    response_reserve: int = 0
    system_tokens: int = 0
    tools_tokens: int = 0
    summary_tokens: int = 0
    message_tokens: int = 0
    total_tokens: int = 0
    threshold_tokens: int = 0
    messages_since_summary: int = 0
    messages_threshold: int | None = None
    tokens_since_summary: int = 0
    tokens_threshold: int | None = None
    will_trigger: bool = False
    next_action: str = "none"
    summary_count: int = 0
    last_summary_at: datetime | None = None
    estimated_response_tokens: int | None = None
    summary: SummaryReply | None = None
    prepared: SummaryReply | None = None

    @property
    def is_compacting_next(self) -> bool:
        """Whether the next message makes the prompt smaller first; a summary being prepared (`prepare`) does not."""
        return self.will_trigger and self.next_action != "prepare"

    @property
    def is_over_window(self) -> bool:
        """Whether what is shown now would take more than the window: the next message makes it smaller first."""
        return self.total_tokens > self.context_window


@dataclass(frozen=True, slots=True)
class AgentReply:
    """An agent one can chat with."""

    name: str
    description: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunErrorReply:
    """Why a run failed."""

    type: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RunReply:
    """A run."""

    id: str
    status: str
    error: RunErrorReply | None = None


@dataclass(frozen=True, slots=True)
class ProblemReply:
    """An RFC 9457 problem document."""

    title: str = ""
    detail: str = ""


def read_json(reply_type: type[Reply], text: str | bytes) -> Reply:
    """Return `text` as a `reply_type`. Raises UnexpectedReply where it is something else."""
    try:
        return _adapter(reply_type).validate_json(text)
    except ValidationError as error:
        raise _unexpected(reply_type, error) from None


def read_value(reply_type: type[Reply], value: object) -> Reply:
    """Return parsed JSON as a `reply_type`. Raises UnexpectedReply where it is something else."""
    try:
        return _adapter(reply_type).validate_python(value)
    except ValidationError as error:
        raise _unexpected(reply_type, error) from None


def _adapter(reply_type: type[Reply]) -> TypeAdapter[Reply]:
    if reply_type not in _ADAPTERS:
        _ADAPTERS[reply_type] = TypeAdapter(reply_type)
    return _ADAPTERS[reply_type]


def _unexpected(reply_type: type[object], error: ValidationError) -> UnexpectedReply:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the whole body"
    return UnexpectedReply(
        f"The service's answer cannot be read as {reply_type.__name__.removesuffix('Reply').lower()} "
        f"({where}: {first['msg']}). Check that the address is a Throughline service of the same version."
    )
