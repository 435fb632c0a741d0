"""Dependencies of the routes. `assembly/` creates them."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from throughline.agents.definition import AgentDefinition
from throughline.agents.registry import AgentRegistry
from throughline.context.explain_context import ContextReport
from throughline.context.preview import Preview
from throughline.db.database import Database
from throughline.domain.basic_types import Clock, MessageId, SessionId, UserId
from throughline.domain.errors import SettingInvalid
from throughline.domain.message import Content, Message, NewMessage
from throughline.domain.model_window import ModelWindow
from throughline.domain.run import RunInput, Submission, Submitted
from throughline.domain.service_status import ServiceStatus
from throughline.domain.summary import CompactionResult
from throughline.turn.recall.history_search import HistorySearch
from throughline.turn.recall.memory_service import MemoryService
from throughline.turn.summary.reread import SummaryCost, SummaryRequest

# Configuration of the HTTP server, and the check of who may be served without an API key. `assembly/` creates the
# configuration once at start, from the settings, the address to serve and whether an API key exists.

ANY_ORIGIN = "*"


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Configuration of the HTTP server.

    `is_local_mode`: no API key existed at start and only a loopback address is bound. A request without a key then acts
    as the user `local`, after its Host and Origin were checked.

    `trusted_socket`: the server listens on a unix socket that only its owner can reach. A request without a key acts as
    `local`.
    """

    version: str
    max_body_bytes: int = 2_000_000
    max_import_bytes: int = 32_000_000
    max_held_body_bytes: int = 128_000_000
    max_websockets: int = 100
    cors_origins: tuple[str, ...] = ()
    is_local_mode: bool = False
    trusted_socket: bool = False
    no_worker_timeout_seconds: float = 30.0
    heartbeat_seconds: float = 5.0
    body_timeout_seconds: float = 30.0
    send_timeout_seconds: float = 60.0
    key_cache_seconds: float = 5.0

    @property
    def is_key_needed(self) -> bool:
        """Whether every request needs an API key."""
        return not (self.is_local_mode or self.trusted_socket)


def check_access(host: str, cors_origins: tuple[str, ...] = (), *, has_keys: bool) -> None:
    """Raise SettingInvalid if everybody could use the service without a key.

    That is so if no API key exists and `host` is no loopback address, or CORS allows pages of any origin.
    """
    if has_keys:
        return
    if not is_loopback(host):
        raise SettingInvalid(
            f"HOST {host} would serve other machines without a key. Create a key first (`throughline keys "
            "create`) or set BOOTSTRAP_API_KEY. Without a key, only a loopback address such as 127.0.0.1 is "
            "allowed."
        )
    if ANY_ORIGIN in cors_origins:
        raise SettingInvalid(
            "CORS_ORIGINS: * would serve every web page that is opened on this machine, without a key. Name the "
            "origins, or create a key first (`throughline keys create`)."
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`. `localhost` is the only name that is trusted."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


@dataclass(frozen=True, slots=True)
class Readiness:
    """Results of the readiness checks by name.

    All `checks` must pass before the process accepts messages; a failed hint only marks it as degraded. `reasons` tells
    operators for some failed checks since when and why they fail.
    """

    checks: Mapping[str, bool]
    hints: Mapping[str, bool] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether every check passed."""
        return all(self.checks.values())

    @property
    def is_degraded(self) -> bool:
        """Whether the process is ready although a hint fails."""
        return self.is_ready and not all(self.hints.values())

    def with_hint(self, name: str, trouble: str | None) -> "Readiness":
        """Return this with one hint more, which fails for the reason `trouble` unless that is None."""
        reasons = {} if trouble is None else {name: trouble}
        return replace(self, hints={**self.hints, name: trouble is None}, reasons={**self.reasons, **reasons})


@dataclass(frozen=True, slots=True)
class Services:
    """Dependencies of the routes.

    - `submit` stores a message as a run.
    - `preview_context` returns the plan for the model call that a message would cause; None: an empty message.
    - `pin_message` and `unpin_message` return the message's whole group (a tool call and its results) after the change.
    - `check_input` raises InvalidInput for overrides and tools of a request that the session's agent does not allow;
      `check_input_for` does so for the agent of that name.
    - `check_summary` raises the error with which a summary on demand would be refused now.
    - `count_messages` returns messages with their token counts, as the named agent counts them.
    - `agent_window` returns the window of an agent's next turn.
    - `read_status` returns the state of the whole service, with the circuit breakers and agent files of this process.
    - `check_ready` raises DatabaseUnavailable or DatabaseUnusable if the database does not serve.
    - `shutting_down` is set after the grace period for turns; requests that still wait are then cut off.
    """

    database: Database
    memories: MemoryService
    history: HistorySearch
    agents: AgentRegistry
    submit: Callable[[Submission], Awaitable[Submitted]]
    report_context: Callable[[UserId, SessionId], Awaitable[ContextReport]]
    preview_context: Callable[[UserId, SessionId, Content | None], Awaitable[Preview]]
    pin_message: Callable[[UserId, SessionId, MessageId], Awaitable[tuple[Message, ...]]]
    unpin_message: Callable[[UserId, SessionId, MessageId], Awaitable[tuple[Message, ...]]]
    check_input: Callable[[UserId, SessionId, RunInput], Awaitable[None]]
    check_input_for: Callable[[str, RunInput], Awaitable[None]]
    summarize_now: Callable[[UserId, SessionId, SummaryRequest], Awaitable[CompactionResult]]
    check_summary: Callable[[UserId, SessionId], Awaitable[None]]
    estimate_summary: Callable[[UserId, SessionId, SummaryRequest], Awaitable[SummaryCost]]
    render_metrics: Callable[[], tuple[bytes, str]]
    check_ready: Callable[[], Awaitable[Readiness]]
    read_status: Callable[[], Awaitable[ServiceStatus]]
    count_messages: Callable[[str, Sequence[NewMessage]], Awaitable[tuple[NewMessage, ...]]]
    agent_window: Callable[[AgentDefinition], Awaitable[ModelWindow]]
    clock: Clock
    shutting_down: asyncio.Event = field(default_factory=asyncio.Event)

    def cut_off(self) -> None:
        """Set `shutting_down` and wake the requests that wait for a run, so that they notice it."""
        self.shutting_down.set()
        self.database.notifier.wake_readers()
